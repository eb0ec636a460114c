from __future__ import annotations

import io
import json
import tarfile
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry_server import FakeRegistry, Handler, serving

from builder.engines.layout import Layout
from builder.engines.registry import Attachment, Registry
from builder.engines.registry.referrers import fallback_tag, merged
from builder.errors import CouldNotError, RefusedError
from builder.oci import INDEX, MANIFEST, SPDX_JSON, Descriptor, Digest, canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BODY = canonical_json({"schemaVersion": 2, "mediaType": MANIFEST, "layers": []})
IMAGE = Descriptor.of(BODY, MANIFEST)


@pytest.fixture(params=[True, False], ids=["api", "fallback"])
def server(request: pytest.FixtureRequest) -> Iterator[FakeRegistry]:
    with serving(FakeRegistry(referrers_api=request.param)) as registry:
        registry.store("o/r", "cpu", MANIFEST, BODY)
        yield registry


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def client(server: FakeRegistry, waits: list[float]) -> Iterator[Registry]:
    with Registry(server.host, sleep=waits.append, clock=lambda: 0.0) as registry:
        yield registry


def answering(status: int, times: int = 1000, **headers: str) -> Callable[[Handler], bool]:
    left = [times]

    def answer(handler: Handler) -> bool:
        left[0] -= 1
        if left[0] < 0:
            return False
        handler.read()
        handler.reply(status, b"", **headers)
        return True

    return answer


def test_what_is_not_there_is_none_and_every_other_failure_an_error(
    server: FakeRegistry, client: Registry
) -> None:
    assert client.head("o/r", "cpu") == IMAGE
    assert client.head("o/r", "absent") is None
    server.before = answering(403)
    with pytest.raises(CouldNotError, match=f"docker login {server.host}"):
        client.head("o/r", "cpu")


def test_a_read_is_repeated_while_the_registry_stumbles(
    server: FakeRegistry, client: Registry, waits: list[float]
) -> None:
    server.before = answering(502, times=2)
    assert client.head("o/r", "cpu") == IMAGE
    assert waits == [0.5, 1.0]


def test_a_read_is_given_up_in_the_end(server: FakeRegistry, client: Registry) -> None:
    server.before = answering(503)
    with pytest.raises(CouldNotError, match=r"HTTP 503.*REGISTRY_FAILED"):
        client.get_manifest("o/r", "cpu")
    assert len(server.calls) == 4


def test_a_dropped_connection_is_asked_again(server: FakeRegistry, client: Registry) -> None:
    def drop_once(handler: Handler) -> bool:
        if len(server.calls) > 1:
            return False
        handler.drop()
        return True

    server.before = drop_once
    assert client.get_manifest("o/r", "cpu") == (IMAGE, BODY)


@pytest.mark.parametrize("header", ["7", "Thu, 01 Jan 1970 00:00:07 GMT"])
def test_retry_after_is_waited_for(
    server: FakeRegistry, client: Registry, waits: list[float], header: str
) -> None:
    server.before = answering(429, times=1, Retry_After=header)
    assert client.head("o/r", "cpu") == IMAGE
    assert waits == [7.0]


def test_a_long_rate_limit_says_to_log_in_and_how_long_to_wait(
    server: FakeRegistry, client: Registry, waits: list[float]
) -> None:
    server.before = answering(429, Retry_After="900")
    with pytest.raises(CouldNotError) as caught:
        client.head("o/r", "cpu")
    (problem,) = caught.value.problems
    assert problem.code == "RATE_LIMIT"
    assert "log in" in str(problem.fix)
    assert "900 s" in str(problem.fix)
    assert waits == []


def test_a_wrong_digest_header_is_an_error(server: FakeRegistry, client: Registry) -> None:
    wrong = Digest.of(b"wrong")

    def lie(handler: Handler) -> bool:
        handler.reply(200, BODY, Docker_Content_Digest=wrong, Content_Type=MANIFEST)
        return True

    server.before = lie
    with pytest.raises(CouldNotError, match=f"{wrong}.*DIGEST_MISMATCH|DIGEST_MISMATCH"):
        client.get_manifest("o/r", "cpu")
    with pytest.raises(CouldNotError, match="DIGEST_MISMATCH"):
        client.head("o/r", IMAGE.digest)


def test_a_manifest_without_digest_header_is_hashed(server: FakeRegistry, client: Registry) -> None:
    def bare(handler: Handler) -> bool:
        handler.reply(200, BODY, Content_Type=MANIFEST)
        return True

    server.before = bare
    assert client.head("o/r", "cpu") == IMAGE


def test_an_endless_document_is_not_taken(server: FakeRegistry, client: Registry) -> None:
    def endless(handler: Handler) -> bool:
        handler.reply(200, b" " * (5 << 20))
        return True

    server.before = endless
    with pytest.raises(CouldNotError, match="REGISTRY_DOCUMENT_TOO_LARGE"):
        client.get_manifest("o/r", "cpu")


def test_a_lost_answer_to_a_manifest_is_compared_and_not_written_again(
    server: FakeRegistry, client: Registry
) -> None:
    def lose(handler: Handler) -> bool:
        if handler.command != "PUT":
            return False
        server.store("o/r", "new", handler.headers["Content-Type"], handler.read())
        handler.drop()
        return True

    server.before = lose
    assert client.push_manifest("o/r", "new", BODY, MANIFEST) == IMAGE
    assert server.count("PUT") == 1


def test_a_manifest_is_written_again_only_after_a_look(
    server: FakeRegistry, client: Registry
) -> None:
    def fail_once(handler: Handler) -> bool:
        if handler.command != "PUT" or server.count("PUT") > 1:
            return False
        handler.read()
        handler.reply(502)
        return True

    server.before = fail_once
    client.push_manifest("o/r", "new", BODY, MANIFEST)
    methods = [method for method, _ in server.calls]
    assert methods == ["PUT", "HEAD", "PUT", "HEAD"]


def test_a_denied_manifest_is_not_tried_again(server: FakeRegistry, client: Registry) -> None:
    server.before = answering(403)
    with pytest.raises(CouldNotError, match="REGISTRY_DENIED"):
        client.push_manifest("o/r", "new", BODY, MANIFEST)
    assert len(server.calls) == 1


def test_another_writer_is_seen_when_a_tag_is_read_back(
    server: FakeRegistry, client: Registry
) -> None:
    other = BODY + b" "

    def overwrite(handler: Handler) -> bool:
        if handler.command == "HEAD":
            server.store("o/r", "latest", MANIFEST, other)
        return False

    server.before = overwrite
    with pytest.raises(CouldNotError, match="DIGEST_MISMATCH"):
        client.tag("o/r", IMAGE.digest, "latest")


def test_a_tag_names_the_same_bytes(server: FakeRegistry, client: Registry) -> None:
    assert client.tag("o/r", IMAGE.digest, "latest") == IMAGE
    assert server.manifests["o/r", "latest"] == (MANIFEST, BODY)


def test_tags_are_listed_over_all_pages(server: FakeRegistry, client: Registry) -> None:
    server.page_size = 2
    for number in range(5):
        server.store("o/r", f"t{number}", MANIFEST, BODY)
    assert client.list_tags("o/r") == ("cpu", "t0", "t1", "t2", "t3", "t4")
    assert client.list_tags("o/none") == ()


def test_a_next_page_on_another_host_is_not_asked(server: FakeRegistry, client: Registry) -> None:
    def lead_away(handler: Handler) -> bool:
        handler.reply(200, b'{"tags": []}', Link='<http://evil.example/v2/>; rel="next"')
        return True

    server.before = lead_away
    with pytest.raises(CouldNotError, match="REGISTRY_UNEXPECTED"):
        client.list_tags("o/r")


def test_attaching_twice_makes_one_referrer(server: FakeRegistry, client: Registry) -> None:
    notes = {"org.opencontainers.image.created": "2026-11-01T00:00:00Z"}
    first = client.attach("o/r", IMAGE, SPDX_JSON, b"{}", SPDX_JSON, notes)
    second = client.attach("o/r", IMAGE, SPDX_JSON, b"{}", SPDX_JSON, notes)
    assert first == second
    assert client.referrers("o/r", IMAGE.digest) == (first,)
    assert first.artifact_type == SPDX_JSON
    assert first.annotations == notes


def test_several_artifacts_write_the_list_once(server: FakeRegistry, client: Registry) -> None:
    server.page_size = 2
    kinds = [f"application/vnd.test.{n}" for n in range(5)]
    made = client.attach_all(
        "o/r", IMAGE, [Attachment(kind, kind.encode(), "text/plain") for kind in kinds]
    )
    listed = {d.digest: d for d in client.referrers("o/r", IMAGE.digest)}
    assert listed == {d.digest: d for d in made}
    assert client.referrers("o/r", IMAGE.digest, kinds[3]) == (made[3],)
    writes = server.count("PUT", fallback_tag(IMAGE.digest))
    assert writes == (0 if server.referrers_api else 1)


def test_no_referrers_is_an_empty_list(client: Registry) -> None:
    assert client.referrers("o/r", IMAGE.digest) == ()


def test_an_image_is_pushed_whole_and_the_second_time_not_at_all(
    server: FakeRegistry, client: Registry, tmp_path: Path
) -> None:
    tar = tmp_path / "root.tar"
    with tarfile.open(tar, "w") as stream:
        stream.addfile(tarfile.TarInfo("etc"), io.BytesIO())
    layout = Layout(tmp_path / "layout")
    base = layout.write_base_image(tar, created=datetime(2026, 1, 1, tzinfo=UTC), reference="b:1")
    pushed = client.push_image(layout, base.digest, "o/new", "cand")
    assert pushed.descriptor.digest == base.digest
    assert [blob.how for blob in pushed.blobs] == ["uploaded", "uploaded"]
    again = client.push_image(layout, base.digest, "o/new")
    assert [blob.how for blob in again.blobs] == ["existed", "existed"]
    assert client.get_manifest("o/new", "cand")[1] == layout.read_blob(base.digest)


def foreign_list(server: FakeRegistry, body: bytes) -> None:
    server.referrers_api = False
    server.store("o/r", fallback_tag(IMAGE.digest), INDEX, body)


def test_foreign_entries_of_the_list_are_kept(server: FakeRegistry, client: Registry) -> None:
    foreign: list[Any] = [{"digest": "sha512:1", "x": 1}, 3]
    foreign_list(server, canonical_json({"manifests": foreign, "mediaType": INDEX, "y": 2}))
    made = client.attach("o/r", IMAGE, SPDX_JSON, b"{}", SPDX_JSON)
    body = server.manifests["o/r", fallback_tag(IMAGE.digest)][1]
    assert json.loads(body)["manifests"][:2] == foreign
    assert json.loads(body)["y"] == 2
    assert client.referrers("o/r", IMAGE.digest) == (made,)


def test_an_entry_that_lost_its_type_is_made_whole(server: FakeRegistry, client: Registry) -> None:
    made = Attachment(SPDX_JSON, b"{}", SPDX_JSON).descriptor(IMAGE)
    bare = {"mediaType": MANIFEST, "digest": made.digest, "size": made.size}
    foreign_list(server, canonical_json({"manifests": [bare], "mediaType": INDEX}))
    assert client.referrers("o/r", IMAGE.digest, SPDX_JSON) == ()
    client.attach("o/r", IMAGE, SPDX_JSON, b"{}", SPDX_JSON)
    assert client.referrers("o/r", IMAGE.digest, SPDX_JSON) == (made,)


@pytest.mark.parametrize("body", [b"[]", b"{}", BODY])
def test_a_list_that_is_none_is_not_overwritten(
    server: FakeRegistry, client: Registry, body: bytes
) -> None:
    foreign_list(server, body)
    with pytest.raises(RefusedError, match="REFERRERS_TAG_FOREIGN"):
        client.referrers("o/r", IMAGE.digest)
    with pytest.raises(RefusedError, match="REFERRERS_TAG_FOREIGN"):
        client.attach("o/r", IMAGE, SPDX_JSON, b"{}", SPDX_JSON)
    assert server.manifests["o/r", fallback_tag(IMAGE.digest)] == (INDEX, body)


def test_a_referrer_that_is_lost_again_is_reported(server: FakeRegistry, client: Registry) -> None:
    server.referrers_api = False
    empty = canonical_json({"manifests": [], "mediaType": INDEX})

    def lose(handler: Handler) -> bool:
        if handler.command == "GET" and "sha256-" in handler.path:
            handler.reply(200, empty, Content_Type=INDEX)
            return True
        return False

    server.before = lose
    with pytest.raises(CouldNotError, match=r"is not listed.*REFERRER_INCOMPLETE"):
        client.attach("o/r", IMAGE, SPDX_JSON, b"{}", SPDX_JSON)


@pytest.mark.parametrize("name", ["UPPER", "../x", "a//b", ""])
def test_a_name_that_is_no_repository_reaches_no_registry(client: Registry, name: str) -> None:
    with pytest.raises(ValueError, match="not a repository"):
        client.head(name, "cpu")


digests = st.integers(0, 5).map(lambda n: Digest.of(bytes([n])))
entries = st.one_of(
    digests.map(lambda d: {"mediaType": MANIFEST, "digest": str(d), "size": 1}),
    st.integers(),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@given(old=st.lists(entries), new=st.lists(digests, unique=True))
def test_merging_keeps_the_foreign_and_is_done_once(old: list[Any], new: list[Digest]) -> None:
    ours = [Descriptor(MANIFEST, digest, 1, artifact_type="t/t") for digest in new]
    once = merged({"manifests": old}, ours)
    assert merged(once, ours) == once
    kept = [e for e in old if not (isinstance(e, dict) and e.get("digest") in new)]
    others = [e for e in once["manifests"] if not (isinstance(e, dict) and e.get("digest") in new)]
    assert others == kept
    assert len(once["manifests"]) == len(kept) + len(new)
