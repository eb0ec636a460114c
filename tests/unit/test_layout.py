from __future__ import annotations

import gzip
import io
import json
import multiprocessing
import tarfile
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.engines.layout import Layout
from builder.engines.layout.index import IMAGE_NAME
from builder.errors import CouldNotError, RefusedError
from builder.oci import CONFIG, INDEX, MANIFEST, Descriptor, Digest, canonical_json

if TYPE_CHECKING:
    from pathlib import Path

EPOCH = datetime(2026, 11, 1, tzinfo=UTC)
NAME = "docker.io/library/debian:trixie"


def root_tar(folder: Path, content: bytes = b"trixie\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "root.tar"
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("etc/debian_version")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return path


def base_layout(tmp_path: Path) -> tuple[Layout, Digest]:
    layout = Layout(tmp_path / "layout")
    written = layout.write_base_image(root_tar(tmp_path), created=EPOCH, reference=NAME)
    return layout, written.digest


def index_of(layout: Layout, *children: dict[str, Any]) -> Digest:
    value = {"schemaVersion": 2, "mediaType": INDEX, "manifests": list(children)}
    return layout.write_blob(canonical_json(value), INDEX).digest


def child(digest: Digest, platform: str, **annotations: str) -> dict[str, Any]:
    system, _, architecture = platform.partition("/")
    return {
        "mediaType": MANIFEST,
        "digest": digest,
        "size": 1,
        "platform": {"os": system, "architecture": architecture},
        "annotations": annotations,
    }


def test_the_same_tar_gives_the_same_digest_in_another_folder(tmp_path: Path) -> None:
    first = base_layout(tmp_path / "a")
    second = base_layout(tmp_path / "b")
    assert first[1] == second[1]


def test_a_base_image_holds_the_tar_in_one_layer_and_its_time(tmp_path: Path) -> None:
    layout, digest = base_layout(tmp_path)
    manifest = layout.manifest(digest)
    config = json.loads(layout.read_blob(manifest.config.digest))
    plain = gzip.decompress(layout.read_blob(manifest.layers[0].digest))
    assert plain == (tmp_path / "root.tar").read_bytes()
    assert config["rootfs"]["diff_ids"] == [Digest.of(plain)]
    assert config["created"] == "2026-11-01T00:00:00Z"
    assert config["config"]["Cmd"] == ["bash"]
    assert layout.size(digest) == sum(
        layout.blob_path(d).stat().st_size
        for d in (digest, manifest.config.digest, manifest.layers[0].digest)
    )


def test_a_base_without_its_tar_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(CouldNotError, match=r"nothing\.tar.*BASE_NOT_READ"):
        Layout(tmp_path / "l").write_base_image(
            tmp_path / "nothing.tar", created=EPOCH, reference=NAME
        )
    assert not list((tmp_path / "l").rglob("new-*"))


def test_a_missing_blob_is_named_with_its_path(tmp_path: Path) -> None:
    digest = Digest.of(b"absent")
    with pytest.raises(CouldNotError) as caught:
        Layout(tmp_path).read_blob(digest)
    (problem,) = caught.value.problems
    assert problem.code == "BLOB_MISSING"
    assert digest in problem.what
    assert digest.hex in str(problem.where)


def test_a_damaged_blob_is_refused(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    blob = layout.write_blob(b"content", CONFIG)
    layout.blob_path(blob.digest).write_bytes(b"c0ntent")
    with pytest.raises(RefusedError, match="BLOB_DAMAGED"):
        layout.read_blob(blob.digest)
    layout.write_blob(b"content", CONFIG)
    assert layout.read_blob(blob.digest) == b"content"


def test_a_blob_of_another_size_is_not_had(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    blob = layout.write_blob(b"content", CONFIG)
    assert layout.has(blob)
    layout.blob_path(blob.digest).write_bytes(b"cut")
    assert not layout.has(blob)


@given(content=st.binary(max_size=4096))
def test_what_was_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    layout = Layout(tmp_path_factory.getbasetemp() / "shared")
    assert layout.read_blob(layout.write_blob(content, CONFIG).digest) == content


def test_an_index_with_attestations_is_resolved_to_its_image(tmp_path: Path) -> None:
    layout, digest = base_layout(tmp_path)
    index = index_of(
        layout,
        child(digest, "linux/amd64"),
        child(
            Digest.of(b"a"),
            "unknown/unknown",
            **{"vnd.docker.reference.type": "attestation-manifest"},
        ),
    )
    assert layout.manifest(index).digest == digest


def test_an_unknown_platform_that_is_no_attestation_is_refused(tmp_path: Path) -> None:
    layout, digest = base_layout(tmp_path)
    bad = Digest.of(b"c")
    index = index_of(layout, child(digest, "linux/amd64"), child(bad, "unknown/unknown"))
    with pytest.raises(RefusedError, match="UNKNOWN_PLATFORM_NOT_ATTESTATION") as caught:
        layout.manifest(index)
    assert bad in str(caught.value)


def test_an_index_without_an_image_for_amd64_is_refused(tmp_path: Path) -> None:
    layout, digest = base_layout(tmp_path)
    with pytest.raises(RefusedError, match=r"linux/arm64.*PLATFORM_NOT_FOUND"):
        layout.manifest(index_of(layout, child(digest, "linux/arm64")))


@pytest.mark.parametrize("raw", [b"{", b"[]", b"{}", b'{"config": 1, "layers": []}'])
def test_what_is_no_manifest_is_refused(tmp_path: Path, raw: bytes) -> None:
    layout = Layout(tmp_path)
    with pytest.raises(RefusedError, match="MANIFEST_INVALID"):
        layout.manifest(layout.write_blob(raw, MANIFEST).digest)


def test_foreign_entries_of_the_index_are_kept(tmp_path: Path) -> None:
    root = tmp_path / "layout"
    root.mkdir()
    foreign = {"mediaType": "x", "digest": "sha512:00", "size": 1, "data": "kept"}
    (root / "index.json").write_text(json.dumps({"manifests": [foreign, 7], "extra": 1}))
    layout, digest = base_layout(tmp_path)
    value = json.loads((root / "index.json").read_bytes())
    assert value["manifests"][:2] == [foreign, 7]
    assert value["extra"] == 1
    assert [entry.digest for entry in layout.entries()] == [digest]
    assert layout.remove_entry(digest)
    assert not layout.remove_entry(digest)
    assert json.loads((root / "index.json").read_bytes())["manifests"] == [foreign, 7]


def test_a_name_moves_to_the_newer_image_and_the_older_one_stays(tmp_path: Path) -> None:
    layout, old = base_layout(tmp_path)
    newer = root_tar(tmp_path / "new", b"forky\n")
    new = layout.write_base_image(newer, created=EPOCH, reference=NAME)
    layout.write_base_image(newer, created=EPOCH, reference=NAME)
    named = [(entry.digest, entry.annotations.get(IMAGE_NAME)) for entry in layout.entries()]
    assert named == [(old, None), (new.digest, NAME)]


def test_a_damaged_index_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text("{")
    with pytest.raises(CouldNotError, match=r"index\.json.*LAYOUT_UNREADABLE"):
        Layout(tmp_path).entries()


def test_a_view_is_a_layout_of_one_image_over_the_shared_blobs(tmp_path: Path) -> None:
    layout, digest = base_layout(tmp_path)
    layout.write_base_image(root_tar(tmp_path / "o", b"o"), created=EPOCH, reference="o:1")
    for _ in range(2):
        view = Layout(layout.view(digest, tmp_path / "view"))
    assert [entry.digest for entry in view.entries()] == [digest]
    assert view.manifest(digest) == layout.manifest(digest)
    assert (view.root / "blobs").is_symlink()


def test_an_archive_holds_the_image_and_its_name_and_nothing_else(tmp_path: Path) -> None:
    layout, digest = base_layout(tmp_path)
    layout.write_base_image(root_tar(tmp_path / "o", b"o"), created=EPOCH, reference="o:1")
    packed = b"".join(layout.stream_tar(digest, "docker.io/o/r:cpu"))
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        content = {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]
    manifest = layout.manifest(digest)
    blobs = {f"blobs/sha256/{d.digest.hex}" for d in (manifest.descriptor, *manifest.blobs)}
    assert set(content) == blobs | {"oci-layout", "index.json"}
    assert all(Digest.of(content[name]).hex == name[-64:] for name in blobs)
    (entry,) = json.loads(content["index.json"])["manifests"]
    assert entry["digest"] == digest
    assert entry["annotations"][IMAGE_NAME] == "docker.io/o/r:cpu"


@pytest.mark.parametrize("damage", [b"", b"other", b"0" * 100_000])
def test_an_archive_of_a_damaged_layer_never_gets_whole(tmp_path: Path, damage: bytes) -> None:
    layout, digest = base_layout(tmp_path)
    layer = layout.manifest(digest).layers[0]
    layout.blob_path(layer.digest).write_bytes(damage)
    with pytest.raises(RefusedError, match="BLOB_DAMAGED"):
        for _ in layout.stream_tar(digest, "a:b"):
            pass


def _write_images(root: Path, writer: int) -> None:
    layout = Layout(root)
    for number in range(10):
        config = layout.write_blob(f"{writer}/{number}".encode(), CONFIG)
        layout.write_image(b"{}", (config,), reference=f"r:{writer}-{number}")


def test_two_processes_lose_no_entry_of_each_other(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_images, args=(tmp_path, n)) for n in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=60)
        assert writer.exitcode == 0
    assert len({entry.digest for entry in Layout(tmp_path).entries()}) == 20


def test_a_descriptor_in_the_manifest_is_the_pushed_one(tmp_path: Path) -> None:
    layout, digest = base_layout(tmp_path)
    raw = layout.read_blob(digest)
    assert layout.manifest(digest).descriptor == Descriptor(MANIFEST, digest, len(raw))
