"""Field cases of group G4, publishing: pushes that fail, empty documents, tags left old."""

from __future__ import annotations

import json
import stat
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from registry_images import store_image
from registry_server import FakeRegistry, Handler, digest_of, serving
from told import check_told

from builder.engines.process import Command, ProcessRunner
from builder.engines.registry import Attachment, Patience, Registry
from builder.engines.syft import Syft
from builder.errors import CouldNotError, Problem
from builder.oci import INDEX, LAYER_GZIP, SPDX_JSON, Descriptor, Digest, Reference
from builder.pipeline.tagging import Terms, check_tags, set_tags
from builder.pipeline.verify import verify
from builder.plan.causes import Output, causes, first_cause, output_of_stream
from builder.plan.moving import Age

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

REPOSITORY = "acme/rocm"
AGE = Age(None, None, "2.6.0", 1_795_910_400)
DENIED = "denied: requested access to the resource is denied"


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with serving(FakeRegistry()) as running:
        yield running


@pytest.fixture
def registry(server: FakeRegistry) -> Iterator[Registry]:
    with Registry(server.host, sleep=lambda _: None) as client:
        yield client


def could_not(act: Callable[[], object]) -> tuple[Problem, ...]:
    with pytest.raises(CouldNotError) as caught:
        act()
    assert caught.value.exit_code != 0
    return caught.value.problems


def refusing(method: str, part: str, status: int, body: bytes = b"") -> Callable[[Handler], bool]:
    """Answer calls of one kind with a failure."""

    def before(handler: Handler) -> bool:
        if handler.command != method or part not in handler.route:
            return False
        handler.read()
        handler.reply(status, body)
        return True

    return before


@pytest.mark.parametrize("case_id", ["g4-01-push-error-in-stream"])
def test_an_error_inside_a_push_stream_is_a_failure(case_id: str) -> None:
    stream = (
        '{"status":"The push refers to repository [docker.io/acme/rocm]"}\n'
        '{"status":"Preparing","id":"a1"}\n'
        f'{{"errorDetail":{{"message":"{DENIED}"}},"error":"{DENIED}"}}\n'
    )
    said = output_of_stream(stream)
    cause = first_cause(said)
    assert said.exit_code == 1
    assert cause is not None
    assert (cause.code, cause.retryable) == ("PUSH_DENIED", False)
    check_told(cause.problem, ("login",))


@pytest.mark.parametrize("case_id", ["g4-01-push-error-in-stream"])
def test_our_own_push_that_is_denied_fails_at_once_and_says_log_in(
    case_id: str, server: FakeRegistry, registry: Registry
) -> None:
    server.before = refusing("POST", "/blobs/uploads", 403, b'{"errors":[{"code":"DENIED"}]}')
    layer = Descriptor.of(b"layer", LAYER_GZIP)
    (problem,) = could_not(lambda: registry.push_blob(REPOSITORY, layer, b"layer"))
    assert problem.code == "REGISTRY_DENIED"
    check_told(problem, ("log in", "403"))
    assert server.count("POST") == 1


@pytest.mark.parametrize("case_id", ["g4-02-partial-multi-registry"])
def test_a_registry_that_fails_in_between_moves_no_tag_and_the_next_run_goes_on(
    case_id: str, server: FakeRegistry, registry: Registry
) -> None:
    old = store_image(server, REPOSITORY, "latest", salt="old")
    new = store_image(server, REPOSITORY, salt="new")
    tags = ["1.2.3", "1.2", "latest"]

    def publish() -> None:
        set_tags(registry, REPOSITORY, new, tags, ours=AGE, terms=Terms(backwards=True))

    server.before = refusing("PUT", "/manifests/", 500)
    (problem,) = could_not(publish)
    assert problem.code == "REGISTRY_FAILED"
    check_told(problem, (server.host, "run the same command again"))
    assert named(registry, "latest") == old
    assert named(registry, "1.2.3") is None
    server.before = lambda _: False
    publish()
    assert {named(registry, tag) for tag in tags} == {new}


def named(registry: Registry, tag: str) -> Digest | None:
    found = registry.head(REPOSITORY, tag)
    return found.digest if found else None


@pytest.mark.parametrize("case_id", ["g4-03-big-blob-upload"])
def test_a_layer_whose_session_expires_again_and_again_is_given_up_after_three(
    case_id: str, server: FakeRegistry
) -> None:
    content = bytes(range(256)) * 40_000
    layer = Descriptor.of(content, LAYER_GZIP)
    server.before = refusing("PATCH", "/blobs/uploads", 404, b'{"errors":[]}')
    with Registry(server.host, chunk_size=2 << 20, sleep=lambda _: None) as registry:
        (problem,) = could_not(lambda: registry.push_blob(REPOSITORY, layer, content))
    assert problem.code == "BLOB_SESSION_EXPIRED"
    check_told(problem, (layer.digest, "split the layer"))
    assert server.count("POST") == 3


@pytest.mark.parametrize("case_id", ["g4-03-big-blob-upload"])
def test_an_engine_that_restarts_a_large_layer_is_told_with_the_layer(case_id: str) -> None:
    stream = "\n".join(
        json.dumps(line)
        for line in (
            {"status": "Pushing", "id": "b7", "progressDetail": {"current": 9_000_000_000}},
            {"status": "Retrying in 5 seconds", "id": "b7"},
            {"status": "Pushing", "id": "b7", "progressDetail": {"current": 1000}},
            {"errorDetail": {"message": "blob upload unknown"}, "error": "blob upload unknown"},
        )
    )
    cause = first_cause(output_of_stream(stream))
    assert cause is not None
    assert cause.code == "BLOB_SESSION_EXPIRED"
    check_told(cause.problem, ("b7", "split the layer"))


@pytest.mark.parametrize(
    ("text", "retryable"),
    [
        ("unexpected status: 502 Bad Gateway", True),
        (DENIED, False),
        ("413 Request Entity Too Large", False),
        ("write: connection reset by peer", True),
        ("unauthorized: authentication required", False),
        ("toomanyrequests: retry-after 30s", True),
        ("unexpected status from PUT request: 500 Internal Server Error", True),
        ("failed to copy: unexpected EOF", True),
        ("unexpected status code 401 Unauthorized", False),
        ("unexpected status: 400 Bad Request", False),
    ],
    ids=lambda value: f"g4-04-transient-502-{value}",
)
def test_what_is_worth_another_try_is_told_apart(text: str, retryable: bool) -> None:
    cause = first_cause(Output(text, exit_code=1))
    assert (cause is not None and cause.retryable) == retryable
    if "retry-after" in text:
        assert cause is not None
        assert cause.wait_seconds == 30


@pytest.mark.parametrize("case_id", ["g4-05-unknown-platform"])
def test_an_attestation_is_no_platform_and_an_image_for_none_is_told(
    case_id: str, server: FakeRegistry, registry: Registry
) -> None:
    image, attested, bad = (store_image(server, REPOSITORY, salt=salt) for salt in "abc")
    unknown = {"os": "unknown", "architecture": "unknown"}
    notes = {
        "vnd.docker.reference.type": "attestation-manifest",
        "vnd.docker.reference.digest": image,
    }
    entries = [
        {"digest": image, "platform": {"os": "linux", "architecture": "amd64"}},
        {"digest": attested, "platform": unknown, "annotations": notes},
        {"digest": bad, "platform": unknown},
    ]

    def codes(*listed: Mapping[str, object]) -> list[tuple[str | None, str]]:
        body = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}).encode()
        server.store(REPOSITORY, "1", INDEX, body)
        found = verify(registry, Reference.parse(f"{server.host}/{REPOSITORY}:1"))
        return [(check.code, check.detail) for check in found.checks]

    ((code, detail),) = codes(*entries)
    assert code == "UNKNOWN_PLATFORM_NOT_ATTESTATION"
    assert bad in detail
    assert attested not in detail
    assert code not in [each for each, _ in codes(*entries[:2])]
    assert [each for each, _ in codes(entries[1])] == ["ATTESTATION_OF_NOTHING"]


def scanner(folder: Path, script: str) -> Syft:
    """Play syft: it tells its version, then ends as the script says."""
    program = folder / "syft"
    program.write_text(
        f'#!{sys.executable}\nimport os, sys\nif sys.argv[1] == "version":\n'
        f'    print(\'{{"version": "1.18.0"}}\')\n    sys.exit()\n{script}\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Syft(ProcessRunner(), program)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        pytest.param("", "SBOM_EMPTY", id="g4-07-syft-memory"),
        pytest.param("sys.exit(137)", "SBOM_OUT_OF_MEMORY", id="g4-07-killed"),
        pytest.param("os.kill(os.getpid(), 9)", "SBOM_OUT_OF_MEMORY", id="g4-07-signal"),
        pytest.param(
            "[open(a.split('=')[-1], 'w').write('{\"packages\": [{}], \"components\": []}')"
            " for a in sys.argv if a.startswith('--output')]",
            "SBOM_EMPTY",
            id="g4-07-the-image-alone",
        ),
        pytest.param("sys.exit(1)", "SBOM_FAILED", id="g4-07-failed"),
    ],
)
def test_a_scanner_that_says_nothing_gives_no_sbom(tmp_path: Path, script: str, code: str) -> None:
    (tmp_path / "index.json").write_text('{"manifests": [{}]}')
    syft = scanner(tmp_path, script)
    (problem,) = could_not(lambda: syft.scan(tmp_path, scratch=tmp_path))
    assert problem.code == code


@pytest.mark.parametrize("case_id", ["g4-08-buildkit-sbom-40mib"])
def test_an_sbom_that_buildkit_refuses_is_told_with_the_option_to_leave_out(case_id: str) -> None:
    log = (
        "#41 exporting attestation manifest\n"
        "ERROR: failed to build: failed to solve: /tmp/buildkit-mount123/sbom.spdx.json exceeds"
        " 41943040 bytes\n"
    )
    cause = first_cause(Output(log, exit_code=1))
    assert cause is not None
    assert (cause.code, cause.retryable) == ("SBOM_TOO_LARGE_FOR_BUILDKIT", False)
    check_told(cause.problem, ("--sbom", "41943040"))


@pytest.mark.parametrize("case_id", ["g4-09-referrers-fallback"])
def test_a_fallback_list_that_lost_a_type_is_repaired_or_told(
    case_id: str, server: FakeRegistry, registry: Registry
) -> None:
    image = store_image(server, REPOSITORY)
    subject = registry.get_manifest(REPOSITORY, image)[0]
    sbom = Attachment(SPDX_JSON, b"{}", SPDX_JSON, title="sbom.spdx.json")
    tag = f"sha256-{image.hex}"

    def bare() -> bytes:
        (entry,) = json.loads(server.manifests[REPOSITORY, tag][1])["manifests"]
        kept = {key: entry[key] for key in ("mediaType", "digest", "size")}
        return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [kept]}).encode()

    (listed,) = registry.attach_all(REPOSITORY, subject, (sbom,))
    server.store(REPOSITORY, tag, INDEX, bare())
    assert registry.referrers(REPOSITORY, image, SPDX_JSON) == ()
    registry.attach_all(REPOSITORY, subject, (sbom,))
    assert registry.referrers(REPOSITORY, image, SPDX_JSON) == (listed,)

    def forget(handler: Handler) -> bool:
        if handler.command == "PUT" and handler.route.endswith(tag):
            body = handler.read()
            server.store(REPOSITORY, tag, INDEX, bare())
            handler.reply(201, Docker_Content_Digest=digest_of(body))
            return True
        return False

    server.store(REPOSITORY, tag, INDEX, bare())
    server.before = forget
    problems = could_not(lambda: registry.attach_all(REPOSITORY, subject, (sbom,)))
    assert {problem.code for problem in problems} <= {"REFERRER_INCOMPLETE", "DIGEST_MISMATCH"}


@pytest.mark.parametrize("case_id", ["g4-10-attest-hang"])
def test_a_tool_that_says_nothing_or_waits_for_an_answer_is_ended_and_named(
    case_id: str, tmp_path: Path
) -> None:
    program = tmp_path / "cosign"
    program.write_text("#!/bin/sh\nread answer && exit 0\nexec sleep 600\n")
    program.chmod(0o755)
    command = Command((str(program), "attest"), timeout=0.5)
    (problem,) = could_not(lambda: ProcessRunner().run(command))
    assert problem.code == "TOOL_TIMEOUT"
    check_told(problem, ("cosign", "0.5 s"))


CACHE = (
    "#60 exporting to GitHub Actions Cache\n"
    "ERROR: failed to solve: failed to copy: PUT https://example.blob.core.windows.net/x 403 Server"
    " failed to authenticate the request\n"
)


@pytest.mark.parametrize("case_id", ["g4-11-cache-token-expired"])
@pytest.mark.parametrize("exported", [True, False])
def test_a_cache_that_could_not_be_kept_is_a_warning_where_the_image_came_out(
    case_id: str, exported: bool
) -> None:
    (cause,) = causes(Output(CACHE, exit_code=1, exported=exported))
    assert cause.code == "CACHE_EXPORT_FAILED"
    assert cause.severity == ("warning" if exported else "error")


@pytest.mark.parametrize("case_id", ["g4-12-push-without-tag"])
def test_every_tag_that_stayed_behind_is_named(
    case_id: str, server: FakeRegistry, registry: Registry
) -> None:
    store_image(server, REPOSITORY, "torch-2.13", salt="old")
    built = store_image(server, REPOSITORY, "latest", salt="new")
    planned = ["latest", "2026-11-30", "torch-2.13"]
    problems = could_not(lambda: check_tags(registry, REPOSITORY, built, planned))
    assert [problem.code for problem in problems] == ["TAG_NOT_SET"] * 2
    told = " ".join(map(str, problems))
    assert "2026-11-30 names nothing" in told
    assert "torch-2.13 names sha256:" in told


def test_a_client_that_is_told_to_wait_waits_that_long_and_tries_again(
    server: FakeRegistry,
) -> None:
    store_image(server, REPOSITORY, "1")
    waits: list[float] = []

    def limited(handler: Handler) -> bool:
        if server.count("HEAD") > 1:
            return False
        handler.reply(429, retry_after="90")
        return True

    server.before = limited
    now = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
    with Registry(
        server.host, sleep=waits.append, clock=lambda: now, patience=Patience(attempts=3)
    ) as client:
        assert client.head(REPOSITORY, "1") is not None
    assert waits == [90.0]
