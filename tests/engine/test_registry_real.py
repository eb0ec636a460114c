"""The client against a real registry, which has no referrers API."""

from __future__ import annotations

import io
import multiprocessing
import random
import tarfile
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import httpx
import pytest

from builder.engines.layout import Layout
from builder.engines.registry import Attachment, Registry
from builder.engines.registry.referrers import fallback_tag
from builder.errors import CouldNotError
from builder.oci import CYCLONEDX_JSON, LAYER_GZIP, SPDX_JSON, TEST_REPORT, Descriptor, Digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.engine
CHUNK = 1 << 20


@pytest.fixture
def client(registry_url: str) -> Iterator[Registry]:
    with Registry(registry_url, chunk_size=CHUNK, sleep=lambda _: None) as registry:
        registry.ping()
        yield registry


@pytest.fixture
def repository() -> str:
    return f"test/r{uuid4().hex}"


def image(tmp_path: Path, size: int = 3 << 20) -> tuple[Layout, Descriptor]:
    content = random.Random(size).randbytes(size)  # noqa: S311 - bytes that do not compress
    tar = tmp_path / "root.tar"
    with tarfile.open(tar, "w") as stream:
        entry = tarfile.TarInfo("payload")
        entry.size = len(content)
        stream.addfile(entry, io.BytesIO(content))
    layout = Layout(tmp_path / "layout")
    created = datetime(2026, 11, 1, tzinfo=UTC)
    return layout, layout.write_base_image(tar, created=created, reference="base:1")


def test_an_image_is_pushed_in_chunks_tagged_and_read_back(
    client: Registry, repository: str, tmp_path: Path
) -> None:
    layout, base = image(tmp_path)
    counted: list[int] = []
    pushed = client.push_image(layout, base.digest, repository, on_bytes=counted.append)
    manifest = layout.manifest(base.digest)
    assert pushed.descriptor.digest == base.digest
    assert sum(counted) == sum(blob.size for blob in manifest.blobs)
    assert client.list_tags(repository) == ()
    assert client.head(repository, "cpu") is None

    client.tag(repository, base.digest, "cpu")
    assert client.list_tags(repository) == ("cpu",)
    descriptor, body = client.get_manifest(repository, "cpu")
    assert (descriptor.digest, body) == (base.digest, manifest.raw)
    layer = manifest.layers[0]
    read = b"".join(client.get_blob(repository, layer))
    assert Digest.of(read) == layer.digest


def test_the_second_push_sends_nothing_and_another_repository_mounts(
    client: Registry, repository: str, tmp_path: Path
) -> None:
    layout, base = image(tmp_path)
    client.push_image(layout, base.digest, repository)
    again = client.push_image(layout, base.digest, repository, "cpu")
    assert [(blob.how, blob.bytes_sent) for blob in again.blobs] == [("existed", 0)] * 2
    other = client.push_image(layout, base.digest, f"{repository}-two", mount_from=(repository,))
    assert [(blob.how, blob.bytes_sent) for blob in other.blobs] == [("mounted", 0)] * 2


class Breaking(httpx.BaseTransport):
    """Passes calls on, and breaks one of them after part of its body went out."""

    def __init__(self, method: str, number: int) -> None:
        self._inner = httpx.HTTPTransport()
        self._method, self._left = method, number

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == self._method:
            self._left -= 1
            if self._left == 0:
                content = request.read()
                return self._inner.handle_request(
                    httpx.Request(
                        request.method,
                        request.url,
                        headers=request.headers,
                        content=_cut(content, len(content) // 3),
                    )
                )
        return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


def _cut(content: bytes, at: int) -> Iterator[bytes]:
    yield content[:at]
    raise httpx.WriteError("the line broke")


@pytest.mark.parametrize(("method", "number"), [("PATCH", 1), ("PATCH", 2), ("PATCH", 3)])
def test_a_broken_upload_arrives_whole(
    registry_url: str, repository: str, method: str, number: int
) -> None:
    content = random.Random(number).randbytes(3 * CHUNK + 7)  # noqa: S311 - any bytes will do
    layer = Descriptor.of(content, LAYER_GZIP)
    breaking = Breaking(method, number)
    with Registry(
        registry_url, transport=breaking, chunk_size=CHUNK, sleep=lambda _: None
    ) as client:
        outcome = client.push_blob(repository, layer, content)
        assert outcome.how == "uploaded"
        assert b"".join(client.get_blob(repository, layer)) == content


def test_referrers_are_kept_once_whichever_number_of_runs(
    client: Registry, repository: str, tmp_path: Path
) -> None:
    layout, base = image(tmp_path, 1000)
    subject = client.push_image(layout, base.digest, repository).descriptor
    artifacts = [
        Attachment(kind, f'{{"kind": "{kind}"}}'.encode(), kind, {"org.example.n": "1"})
        for kind in (SPDX_JSON, CYCLONEDX_JSON, TEST_REPORT)
    ]
    first = client.attach_all(repository, subject, artifacts)
    before = client.head(repository, fallback_tag(subject.digest))
    assert client.attach_all(repository, subject, artifacts) == first
    assert client.head(repository, fallback_tag(subject.digest)) == before
    assert client.referrers(repository, subject.digest) == first
    (spdx,) = client.referrers(repository, subject.digest, SPDX_JSON)
    assert spdx.annotations == {"org.example.n": "1"}
    manifest = client.get_manifest(repository, spdx.digest)[1]
    assert artifacts[0].manifest(subject) == manifest


def _attach_many(host: str, repository: str, number: int) -> None:
    body = f'{{"schemaVersion":2,"n":{number}}}'.encode()
    subject = Descriptor.of(body, "application/vnd.oci.image.manifest.v1+json")
    with Registry(host) as client:
        for count in range(5):
            client.attach(repository, subject, SPDX_JSON, f"{count}".encode(), SPDX_JSON)
        if len(client.referrers(repository, subject.digest)) != 5:
            raise SystemExit(1)


def test_two_processes_can_attach_to_different_images(registry_url: str, repository: str) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_attach_many, args=(registry_url, repository, n)) for n in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0


def test_a_manifest_whose_blobs_are_missing_is_refused_in_its_words(
    client: Registry, repository: str, tmp_path: Path
) -> None:
    layout, base = image(tmp_path, 1000)
    manifest = layout.manifest(base.digest)
    with pytest.raises(CouldNotError, match="BLOB_UNKNOWN"):
        client.push_manifest(repository, "cpu", manifest.raw, manifest.media_type)
