"""What the layers of an image say is installed, without unpacking them."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.engines.layers import Installed, installed
from builder.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
STATUS = (
    b"Package: dash\nStatus: install ok installed\nVersion: 0.5\n\n"
    b"Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n"
)
METADATA = b"Metadata-Version: 2.1\nName: My_Package\nVersion: 1.0\n\nText\n"
DASH = Installed("dpkg", "dash", "0.5")
MINE = Installed("python", "my-package", "1.0")


def tar(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def pieces(content: bytes, size: int = 7) -> Iterator[bytes]:
    yield from (content[start : start + size] for start in range(0, len(content), size))


def layers(*layer_files: Mapping[str, bytes]) -> frozenset[Installed]:
    return installed((GZIP, pieces(gzip.compress(tar(files)))) for files in layer_files)


def test_dpkg_and_python_packages_are_found_and_removed_ones_are_not() -> None:
    files = {
        "./var/lib/dpkg/status": STATUS,
        "usr/lib/python3/dist-packages/My_Package-1.0.dist-info/METADATA": METADATA,
    }
    assert layers(files) == {DASH, MINE}


def test_a_later_layer_has_the_last_word() -> None:
    assert layers({"var/lib/dpkg/status": STATUS}, {"var/lib/dpkg/status": b""}) == frozenset()


@pytest.mark.parametrize("white", ["opt/x.egg-info/.wh.PKG-INFO", "opt/.wh.x.egg-info"])
def test_a_whiteout_takes_a_file_or_its_folder_away(white: str) -> None:
    assert layers({"opt/x.egg-info/PKG-INFO": METADATA}, {white: b""}) == frozenset()


def test_an_opaque_folder_hides_what_lay_below_and_keeps_what_comes_with_it() -> None:
    below = {"opt/old.dist-info/METADATA": METADATA.replace(b"My_", b"Old_")}
    above = {"opt/.wh..wh..opq": b"", "opt/new.dist-info/METADATA": METADATA}
    assert layers(below, above) == {MINE}


def test_a_hostile_name_is_only_a_name() -> None:
    assert layers({"../../var/lib/dpkg/status": STATUS}) == frozenset()


def test_several_gzip_members_are_one_layer() -> None:
    plain = tar({"var/lib/dpkg/status": STATUS})
    content = gzip.compress(plain[:600]) + gzip.compress(plain[600:])
    assert installed([(GZIP, pieces(content))]) == {DASH}


@pytest.mark.parametrize("media_type", [GZIP, GZIP.replace("gzip", "zstd")])
def test_what_cannot_be_read_is_refused_by_name(media_type: str) -> None:
    with pytest.raises(RefusedError, match="cannot be read"):
        installed([(media_type, pieces(b"no archive at all, in any compression"))])


def test_every_layer_is_read_to_its_end() -> None:
    rest = pieces(gzip.compress(tar({"a": b""}) + b"\0" * 100_000))
    installed([(GZIP, rest)])
    assert next(rest, None) is None


@given(size=st.integers(1, 5000))
def test_the_size_of_the_pieces_does_not_matter(size: int) -> None:
    plain = tar({"var/lib/dpkg/status": STATUS})
    assert installed([("application/vnd.oci.image.layer.v1.tar", pieces(plain, size))]) == {DASH}
