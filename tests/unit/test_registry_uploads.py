from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from registry_server import FakeRegistry, Handler, serving

from builder.engines.registry import Patience, PushOutcome, Registry
from builder.errors import CouldNotError, RefusedError
from builder.oci import LAYER_GZIP, Descriptor, Digest

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 2 << 20
BLOB = b"".join(hashlib.sha256(bytes([n % 251, n // 251])).digest() * 512 for n in range(400))
LAYER = Descriptor.of(BLOB, LAYER_GZIP)


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with serving(FakeRegistry()) as registry:
        yield registry


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def client(server: FakeRegistry, waits: list[float]) -> Iterator[Registry]:
    with Registry(server.host, chunk_size=CHUNK, sleep=waits.append) as registry:
        yield registry


def stored(server: FakeRegistry) -> bool:
    return server.blobs.get(("o/r", LAYER.digest)) == BLOB


def test_a_blob_that_is_there_is_not_sent(server: FakeRegistry, client: Registry) -> None:
    server.blobs["o/r", LAYER.digest] = BLOB
    assert client.push_blob("o/r", LAYER, Path("/nonexistent")) == PushOutcome("existed")
    assert server.count("POST") == 0


def test_a_blob_is_mounted_from_where_it_is(server: FakeRegistry, client: Registry) -> None:
    server.blobs["o/base", LAYER.digest] = BLOB
    outcome = client.push_blob("o/r", LAYER, BLOB, mount_from=("o/none", "o/base"))
    assert outcome == PushOutcome("mounted")
    assert stored(server)


def test_a_mount_that_fails_goes_on_with_its_session(
    server: FakeRegistry, client: Registry
) -> None:
    outcome = client.push_blob("o/r", LAYER, BLOB, mount_from=("o/none",))
    assert outcome == PushOutcome("uploaded", len(BLOB))
    assert server.count("POST") == 1


def test_a_small_blob_is_sent_in_one_call(server: FakeRegistry, client: Registry) -> None:
    small = Descriptor.of(b"{}", "application/json")
    assert client.push_blob("o/r", small, b"{}") == PushOutcome("uploaded", 2)
    assert (server.count("POST"), server.count("PATCH"), server.count("PUT")) == (1, 0, 1)


def test_an_empty_blob_can_be_pushed(server: FakeRegistry, client: Registry) -> None:
    outcome = client.push_blob("o/r", Descriptor.of(b"", "text/plain"), b"")
    assert outcome == PushOutcome("uploaded", 0)


def test_a_large_blob_is_sent_in_chunks_and_counted(
    server: FakeRegistry, client: Registry, tmp_path: Path
) -> None:
    path = tmp_path / "layer"
    path.write_bytes(BLOB)
    counted: list[int] = []
    outcome = client.push_blob("o/r", LAYER, path, on_bytes=counted.append)
    assert outcome == PushOutcome("uploaded", len(BLOB))
    assert sum(counted) == len(BLOB)
    assert server.count("PATCH") == -(-len(BLOB) // CHUNK)
    assert stored(server)


def test_a_broken_chunk_is_resumed_from_where_the_registry_stands(
    server: FakeRegistry, client: Registry
) -> None:
    def break_second(handler: Handler) -> bool:
        if handler.command != "PATCH" or server.count("PATCH") != 2:
            return False
        session = handler.route.rpartition("/")[2]
        server.uploads[session] += handler.read(700_001)
        handler.drop()
        return True

    server.before = break_second
    outcome = client.push_blob("o/r", LAYER, BLOB)
    assert stored(server)
    assert outcome.how == "uploaded"
    starts = [h["Content-Range"].split("-")[0] for h in server.headers if "Content-Range" in h]
    assert starts[2] == str(CHUNK + 700_001)
    assert server.count("POST") == 1


def test_a_broken_upload_in_one_call_goes_on_in_the_same_session(server: FakeRegistry) -> None:
    def break_first(handler: Handler) -> bool:
        if handler.command != "PUT" or server.count("PUT") != 1:
            return False
        server.uploads[handler.route.rpartition("/")[2]] += handler.read(1_000_001)
        handler.drop()
        return True

    server.before = break_first
    with Registry(server.host, sleep=lambda _: None) as client:
        assert client.push_blob("o/r", LAYER, BLOB).how == "uploaded"
    assert stored(server)
    assert server.count("POST") == 1


def test_a_lost_answer_to_the_last_call_sends_nothing_again(
    server: FakeRegistry, client: Registry
) -> None:
    def lose(handler: Handler) -> bool:
        if handler.command != "PUT":
            return False
        handler.read()
        server.blobs["o/r", LAYER.digest] = bytes(
            server.uploads.pop(handler.route.rpartition("/")[2])
        )
        handler.drop()
        return True

    server.before = lose
    assert client.push_blob("o/r", LAYER, BLOB) == PushOutcome("uploaded", len(BLOB))
    assert server.count("PUT") == 1


def test_a_session_that_keeps_expiring_stops_after_two_restarts(
    server: FakeRegistry, client: Registry
) -> None:
    def expire(handler: Handler) -> bool:
        if handler.command == "PUT":
            server.uploads.clear()
        return False

    server.before = expire
    with pytest.raises(CouldNotError, match="BLOB_SESSION_EXPIRED") as caught:
        client.push_blob("o/r", LAYER, BLOB)
    assert server.count("POST") == 3
    assert LAYER.digest in str(caught.value)
    assert "split the layer" in str(caught.value)


def test_a_registry_that_makes_no_progress_is_given_up(
    server: FakeRegistry, client: Registry, waits: list[float]
) -> None:
    def refuse(handler: Handler) -> bool:
        if handler.command != "PATCH":
            return False
        handler.read()
        handler.reply(502)
        return True

    server.before = refuse
    with pytest.raises(CouldNotError, match=r"HTTP 502.*REGISTRY_FAILED"):
        client.push_blob("o/r", LAYER, BLOB)
    assert server.count("PATCH") == Patience().attempts
    assert waits == [0.5, 1.0, 2.0]


def test_a_layer_beyond_the_limit_says_so_and_is_sent_once(
    server: FakeRegistry, client: Registry
) -> None:
    def too_large(handler: Handler) -> bool:
        if handler.command != "PATCH":
            return False
        handler.read()
        handler.reply(413)
        return True

    server.before = too_large
    with pytest.raises(CouldNotError, match="BLOB_TOO_LARGE"):
        client.push_blob("o/r", LAYER, BLOB)
    assert server.count("PATCH") == 1


@pytest.mark.parametrize("content", [b"short", BLOB[:-1] + b"\1"])
def test_a_source_that_is_not_the_blob_is_refused(
    server: FakeRegistry, client: Registry, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "layer"
    path.write_bytes(content)
    with pytest.raises(RefusedError, match="BLOB_DAMAGED"):
        client.push_blob("o/r", LAYER, path)


def test_a_missing_source_is_named(client: Registry, tmp_path: Path) -> None:
    with pytest.raises(CouldNotError, match=r"nothing.*BLOB_MISSING"):
        client.push_blob("o/r", LAYER, tmp_path / "nothing")


def test_a_download_goes_on_where_it_broke(server: FakeRegistry, client: Registry) -> None:
    server.blobs["o/r", LAYER.digest] = BLOB

    def break_once(handler: Handler) -> bool:
        if handler.command != "GET" or server.count("GET") != 1:
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(BLOB)))
        handler.end_headers()
        handler.wfile.write(BLOB[:3_000_000])
        handler.drop()
        return True

    server.before = break_once
    assert b"".join(client.get_blob("o/r", LAYER)) == BLOB
    assert any("Range" in headers for headers in server.headers)


def test_a_blob_with_other_bytes_is_an_error(server: FakeRegistry, client: Registry) -> None:
    wanted = Descriptor("x/y", Digest.of(b"wanted"), 6)
    server.blobs["o/r", wanted.digest] = b"wonted"
    with pytest.raises(CouldNotError, match="DIGEST_MISMATCH"):
        list(client.get_blob("o/r", wanted))
