"""The real scanner on a real layout: deterministic documents that list what is installed."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from builder.engines.process import ProcessRunner
from builder.engines.syft import Scan, Syft
from builder.oci import CONFIG, INDEX, LAYER_GZIP, MANIFEST, Descriptor, Digest, canonical_json
from builder.report.sbom import normalise_cyclonedx, normalise_spdx, packages

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

INSTALLED = {"base-files": "13.8", "libc6": "2.41-12+deb13u1", "python3-torch": "2.6.0+dfsg-7"}
EPOCH = datetime(2026, 11, 14, tzinfo=UTC)


def status_file() -> bytes:
    """Return a dpkg database that names the packages of ``INSTALLED``."""
    return "".join(
        f"Package: {name}\nStatus: install ok installed\nPriority: optional\nSection: misc\n"
        f"Maintainer: Nobody <nobody@example.org>\nArchitecture: amd64\nVersion: {version}\n"
        + ("Depends: libc6 (>= 2.38)\n" if name == "python3-torch" else "")
        + f"Description: {name}\n\n"
        for name, version in INSTALLED.items()
    ).encode()


def write_layout(folder: Path) -> Digest:
    """Write a one-image OCI layout with a Debian root of three packages."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(content: bytes, media_type: str) -> dict[str, Any]:
        (blobs / Digest.of(content).hex).write_bytes(content)
        return Descriptor.of(content, media_type).to_json()

    files = {
        "etc/os-release": b'ID=debian\nVERSION_ID="13"\nPRETTY_NAME="Debian GNU/Linux 13"\n',
        "var/lib/dpkg/status": status_file(),
        **{f"var/lib/dpkg/info/{name}.list": f"/usr/{name}\n".encode() for name in INSTALLED},
        **{f"usr/{name}": b"content" for name in INSTALLED},
    }
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {
            "type": "layers",
            "diff_ids": ["sha256:" + hashlib.sha256(plain.getvalue()).hexdigest()],
        },
    }
    manifest = canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": put(canonical_json(config), CONFIG),
            "layers": [put(gzip.compress(plain.getvalue(), mtime=0), LAYER_GZIP)],
        }
    )
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [put(manifest, MANIFEST)]}
    (folder / "index.json").write_bytes(canonical_json(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return Digest.of(manifest)


def documents(scan: Scan, digest: Digest) -> tuple[bytes, bytes]:
    name = "ourorg/rocm-torch:cpu-py313"
    return (
        normalise_spdx(scan.spdx, image_name=name, image_digest=digest, created=EPOCH),
        normalise_cyclonedx(scan.cyclonedx, image_name=name, image_digest=digest, created=EPOCH),
    )


def test_two_scans_in_two_folders_are_byte_equal_and_list_every_package(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "some" / "other-folder"
    digest = write_layout(first)
    shutil.copytree(first, second)
    (tmp_path / "scratch").mkdir()
    syft = Syft(ProcessRunner())

    results = [
        documents(syft.scan(layout, scratch=tmp_path / "scratch", timeout=120), digest)
        for layout in (first, second)
    ]

    assert results[0] == results[1]
    assert not list((tmp_path / "scratch").iterdir())
    for content in results[0]:
        document = json.loads(content)
        assert {one.name: one.version for one in packages(document)} == INSTALLED
        assert {one.type for one in packages(document)} == {"deb"}
        assert str(tmp_path) not in content.decode()
        assert tmp_path.name not in content.decode()


def test_the_version_of_the_scanner_is_known_and_stands_in_the_document(tmp_path: Path) -> None:
    digest = write_layout(tmp_path / "layout")
    syft = Syft(ProcessRunner())
    scan = syft.scan(tmp_path / "layout", scratch=tmp_path, timeout=120)
    assert scan.syft_version == syft.version
    assert f"Tool: syft-{syft.version}".encode() in documents(scan, digest)[0]
