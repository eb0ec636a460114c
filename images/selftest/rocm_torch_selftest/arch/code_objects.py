"""The targets of the code objects inside a shared library, read from the file itself.

clang puts kernels into offload bundles (LLVM, "Clang Offload Bundler"): a table of entries whose
names end in the target, plain (``__CLANG_OFFLOAD_BUNDLE__``) or compressed (``CCOB``). Those of a
HIP library stand in the section ``.hip_fatbin``, one behind the other.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
import struct
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Iterator

from rocm_torch_selftest.arch.targets import is_target, stripped

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED = b"CCOB"
SECTION = b".hip_fatbin"
_HEAD_BYTES = 64 * 1024  # of a decompressed bundle: more than any table of entries
_PACKED_BYTES = 1 << 20  # of a compressed bundle: more than its head needs
_ZLIB, _ZSTD = 0, 1
_MAX_ENTRIES = 256


class UnreadableBundleError(Exception):
    """A compressed bundle whose method cannot be undone here."""


def bundle_targets(file: Path) -> tuple[str, ...]:
    """Return the targets that at least half of the bundles of a library have, sorted.

    Half, because libraries carry some kernels for a few targets only: those do not make the
    library serve a target.

    Raises:
        OSError: the file cannot be read.
        UnreadableBundleError: its bundles are compressed and cannot be read here.
    """
    if not file.stat().st_size:
        return ()
    counts: Counter[str] = Counter()
    bundles = 0
    with file.open("rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for start, end in _fat_sections(data):
            for names in _bundles(data, start, end):
                bundles += 1
                counts.update(names)
    return tuple(sorted(name for name, count in counts.items() if 2 * count >= bundles))


def _fat_sections(data: mmap.mmap) -> list[tuple[int, int]]:
    """Return begin and end of the sections with bundles; a file that is no ELF counts as one."""
    if data[:4] != b"\x7fELF" or data[4] != 2:
        return [(0, len(data))]
    offset, size, number, names_index = struct.unpack_from("<Q10xHHH", data, 40)
    headers = [struct.unpack_from("<IIQQQQ", data, offset + size * row) for row in range(number)]
    if names_index >= len(headers):
        return []
    names = headers[names_index][4]
    found = []
    for name, _kind, _flags, _address, start, length in headers:
        end = data.find(b"\0", names + name)
        if data[names + name : end] == SECTION:
            found.append((start, start + length))
    return found


def _bundles(data: mmap.mmap, start: int, end: int) -> Iterator[set[str]]:
    """Yield the targets of each bundle; bundles are skipped over, not searched through."""
    position = start
    while True:
        plain, packed = data.find(PLAIN, position, end), data.find(COMPRESSED, position, end)
        if plain < 0 and packed < 0:
            return
        if plain >= 0 and (packed < 0 or plain < packed):
            names, length = _entries(data[plain : plain + _HEAD_BYTES], end - plain)
            position = plain + max(length, len(PLAIN))
        else:
            head, length = _unpacked_head(data, packed, end)
            names, _ = _entries(head, None)
            position = packed + max(length, len(COMPRESSED))
        if names:
            yield names


def _entries(head: bytes, room: int | None) -> tuple[set[str], int]:
    """Return the targets of a plain bundle and its length in bytes.

    A bundle that would be larger than the room for it is none: its first bytes can stand in
    compressed data.
    """
    position, length = len(PLAIN) + 8, 0
    if not head.startswith(PLAIN) or len(head) < position:
        return set(), 0
    (count,) = struct.unpack_from("<Q", head, len(PLAIN))
    names: set[str] = set()
    for _ in range(min(count, _MAX_ENTRIES)):
        if position + 24 > len(head):
            break
        offset, size, characters = struct.unpack_from("<QQQ", head, position)
        name = head[position + 24 : position + 24 + characters].decode("ascii", "replace")
        position += 24 + characters
        length = max(length, offset + size)
        if room is not None and length > room:
            return set(), 0
        target = stripped(name.split("--", 1)[-1]) if "amdgcn" in name else ""
        if is_target(target):
            names.add(target)
    return names, length


def _unpacked_head(data: mmap.mmap, start: int, end: int) -> tuple[bytes, int]:
    """Return the first bytes of a compressed bundle, and the length of the compressed one.

    Version 1 of the header has no length of its own: then the next bundle is searched for.
    """
    if start + 32 > end:
        return b"", 0
    version, method = struct.unpack_from("<HH", data, start + 4)
    if version == 1:
        header, length = 20, 0
    elif version == 2:
        header, (length,) = 24, struct.unpack_from("<I", data, start + 8)
    elif version == 3:
        header, (length,) = 32, struct.unpack_from("<Q", data, start + 8)
    else:
        return b"", 0
    stop = min(end, start + min(length or _PACKED_BYTES, _PACKED_BYTES))
    content = data[start + header : stop]
    if method == _ZLIB:
        return zlib.decompressobj().decompress(content, _HEAD_BYTES), length
    if method == _ZSTD:
        return _unzstd(content), length
    raise UnreadableBundleError(f"compression method {method} is not known")


class _Buffer(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t), ("at", ctypes.c_size_t))


def _unzstd(content: bytes) -> bytes:
    """Return the first bytes of zstd data; Python has no zstd of its own before 3.14."""
    try:
        library = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
    except OSError as error:
        raise UnreadableBundleError("its bundles are zstd and there is no libzstd") from error
    library.ZSTD_createDStream.restype = ctypes.c_void_p
    library.ZSTD_decompressStream.restype = ctypes.c_size_t
    library.ZSTD_decompressStream.argtypes = [
        ctypes.c_void_p,
        ctypes.POINTER(_Buffer),
        ctypes.POINTER(_Buffer),
    ]
    library.ZSTD_freeDStream.argtypes = [ctypes.c_void_p]
    stream = library.ZSTD_createDStream()
    source = ctypes.create_string_buffer(content, len(content))
    target = ctypes.create_string_buffer(_HEAD_BYTES)
    give = _Buffer(ctypes.addressof(source), len(content), 0)
    take = _Buffer(ctypes.addressof(target), _HEAD_BYTES, 0)
    try:
        while give.at < give.size and take.at < take.size:
            status = library.ZSTD_decompressStream(stream, ctypes.byref(take), ctypes.byref(give))
            if library.ZSTD_isError(ctypes.c_size_t(status)):
                raise UnreadableBundleError("its bundles are no valid zstd")
            if status == 0:
                break
    finally:
        library.ZSTD_freeDStream(stream)
    return target.raw[: take.at]
