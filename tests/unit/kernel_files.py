"""Libraries with code objects, laid out as clang lays them, and a torch package around them."""

from __future__ import annotations

import ctypes
import ctypes.util
import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def bundle(*names: str) -> bytes:
    """Return an offload bundle: a table of entries, then 64 bytes of code for each."""
    triples = ["host-x86_64-unknown-linux--"]
    triples += [f"hipv4-amdgcn-amd-amdhsa--{name}" for name in names]
    table = 32 + sum(24 + len(triple) for triple in triples)
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(triples))
    for number, triple in enumerate(triples):
        head += struct.pack("<QQQ", table + 64 * number, 64, len(triple)) + triple.encode()
    return head + bytes(64 * len(triples))


def zstd(content: bytes) -> bytes:
    library = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
    library.ZSTD_compress.restype = library.ZSTD_compressBound.restype = ctypes.c_size_t
    room = library.ZSTD_compressBound(ctypes.c_size_t(len(content)))
    target = ctypes.create_string_buffer(room)
    size = library.ZSTD_compress(
        target, ctypes.c_size_t(room), content, ctypes.c_size_t(len(content)), 3
    )
    return target.raw[:size]


def compressed(content: bytes, version: int, method: int) -> bytes:
    packed = zstd(content) if method == 1 else zlib.compress(content)
    start = b"CCOB" + struct.pack("<HH", version, method)
    if version == 1:
        return start + struct.pack("<IQ", len(content), 7) + packed
    if version == 2:
        return start + struct.pack("<IIQ", 24 + len(packed), len(content), 7) + packed
    return start + struct.pack("<QQQ", 32 + len(packed), len(content), 7) + packed


def library(*sections: tuple[str, bytes]) -> bytes:
    """Return a 64-bit ELF file with these sections and nothing else."""
    names, offsets, body = b"\0", [], b""
    for name, content in (*sections, (".shstrtab", b"")):
        offsets.append(len(names))
        names += name.encode() + b"\0"
        body += content
    position, headers = 64, [bytes(64)]
    for (_, content), at in zip((*sections, ("", names)), offsets, strict=True):
        headers.append(struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, position, len(content), 0, 0, 1, 0))
        position += len(content)
    count = len(headers)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 3, 62, 1)
    head += struct.pack("<QQQIHHHHHH", 0, 0, position, 0, 64, 0, 0, 64, count, count - 1)
    return head + body + names + b"".join(headers)


def fat(*bundles: bytes) -> bytes:
    return library((".text", b"\x90" * 40), (".hip_fatbin", b"".join(bundles)), (".data", b"x" * 9))


def torch_package(folder: Path, *names: str, hip: str | None = "6.2.41133") -> Path:
    package = folder / "torch"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('it was imported')\n")
    (package / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.7.1+rocm6.2.4'\n"
        f"cuda: Optional[str] = None\nhip: Optional[str] = {hip!r}\n"
    )
    (package / "lib/libtorch_hip.so").write_bytes(fat(bundle(*names)))
    (package / "lib/librocblas.so").write_bytes(fat(bundle("gfx803", *names)))
    return package


def rocblas(package: Path, *names: str) -> None:
    folder = package / "lib/rocblas/library"
    folder.mkdir(parents=True)
    (folder / "TensileLibrary.dat").write_bytes(b"")
    for name in names:
        (folder / f"TensileLibrary_Type_HH_fallback_{name}.dat").write_bytes(b"")
        (folder / f"Kernels.so-000-{name}-xnack+.hsaco").write_bytes(b"")
