"""The layout with the programs that share it: the engine loads from it, BuildKit writes to it."""

from __future__ import annotations

import io
import subprocess
import tarfile
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import docker
import pytest

from builder.engines.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

    from builder.oci import Descriptor

pytestmark = pytest.mark.engine


def base_layout(tmp_path: Path) -> tuple[Layout, Descriptor]:
    tar = tmp_path / "root.tar"
    with tarfile.open(tar, "w") as stream:
        entry = tarfile.TarInfo("etc/probe")
        entry.size = 5
        stream.addfile(entry, io.BytesIO(b"probe"))
    layout = Layout(tmp_path / "layout")
    created = datetime(2026, 11, 1, tzinfo=UTC)
    return layout, layout.write_base_image(tar, created=created, reference="probe:base")


def test_the_engine_loads_an_archive_under_its_name_and_digest(tmp_path: Path) -> None:
    layout, base = base_layout(tmp_path)
    name = f"layout-probe:{uuid4().hex}"
    archive: Any = layout.stream_tar(base.digest, f"docker.io/library/{name}")  # a stream will do
    client = docker.from_env()
    try:
        (image,) = client.images.load(archive)
        assert image.id == base.digest
        assert image.tags == [name]
        client.images.remove(name)
    finally:
        client.close()


def test_buildkit_takes_the_base_and_adds_its_image_to_ours(tmp_path: Path) -> None:
    layout, base = base_layout(tmp_path)
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM probe:base\nCOPY Dockerfile /Dockerfile\n")
    done = subprocess.run(
        [
            "docker",
            "buildx",
            "build",
            "--provenance=false",
            "--build-context",
            f"probe:base=oci-layout://{layout.root}@{base.digest}",
            "--output",
            f"type=oci,tar=false,dest={layout.root},name=probe:built",
            str(context),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = layout.entries()
    assert first == base
    built = layout.manifest(second.digest)
    assert built.layers[0] == layout.manifest(base.digest).layers[0]
    layout.write_base_image(
        tmp_path / "root.tar", created=datetime(2026, 12, 1, tzinfo=UTC), reference="probe:base"
    )
    assert {entry.digest for entry in layout.entries()} >= {base.digest, second.digest}
    assert all(layout.has(blob) for blob in built.blobs)
