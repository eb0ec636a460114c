"""Field cases of group G5: the docker SDK, BuildKit and the engine, as our adapters meet them."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from engine_server import FakeEngine, serving_engine
from samples import OURS, ROOT, project
from test_pipeline_steps import session
from told import check_told

from builder.cli.main import run
from builder.engines import docker_engine
from builder.engines.docker_engine import DockerEngine, RunSpec
from builder.errors import CouldNotError, Problem
from builder.oci import Digest
from builder.pipeline.causes import explained
from builder.plan.causes import Output, first_cause, output_of_stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DIGEST = Digest.of(b"image")
SPEC = RunSpec("image", ("true",), timeout=0.3)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    with serving_engine(FakeEngine()) as serving:
        monkeypatch.setenv("DOCKER_HOST", serving.address)
        yield serving


STREAM = """{"stream":"Step 3/4 : RUN pip install foo"}
{"stream":"ERROR: No matching distribution found for foo\\n"}
{"errorDetail":{"code":1,"message":"The command returned a non-zero code: 1"},"error":"The command"}
"""


@pytest.mark.parametrize("case_id", ["g5-02-builderror-hides-log"])
def test_the_reason_in_a_build_stream_is_not_lost(
    case_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "stream.json"
    log.write_text(STREAM)
    assert run(["why", str(log)]) == 3
    told = capsys.readouterr().out
    for line in ("Step 3/4", "No matching distribution found for foo", "non-zero code: 1"):
        assert line in told


@pytest.mark.parametrize("case_id", ["g5-02-builderror-hides-log"])
def test_a_failed_build_tells_its_cause_before_the_end_of_its_log(
    case_id: str, tmp_path: Path
) -> None:
    log = tmp_path / "build.log"
    log.write_text(
        "#9 1.2 error: externally-managed-environment\n"
        + "#9 1.3 hint: ...\n" * 50
        + "#9 ERROR: exit code: 1\n"
    )
    bare = CouldNotError(Problem("BUILD_FAILED", "the build ended; its last lines: ...", "cell"))
    cause, failed = explained(bare, log).problems
    assert (cause.code, cause.where) == ("PEP668", "cell")
    assert failed == bare.problems[0]
    again = explained(CouldNotError((cause, failed)), log)
    assert [problem.code for problem in again.problems] == ["PEP668", "BUILD_FAILED"]


def test_a_failure_that_quotes_nobody_stays_as_it_is() -> None:
    error = CouldNotError(Problem("DISK_TOO_SMALL", "no space left on device"))
    assert explained(error) is error
    unknown = CouldNotError(Problem("ENGINE_REFUSED", "could not do it: no"))
    assert explained(unknown) is unknown


@pytest.mark.parametrize("case_id", ["g5-03-read-timeout"])
def test_an_engine_that_unpacks_in_silence_is_waited_for_and_another_call_is_not(
    case_id: str, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert docker_engine._SILENT_SECONDS >= 1800
    monkeypatch.setattr(docker_engine, "_CALL_SECONDS", 0.3)
    engine.answers = {
        "/images/load": (200, {"stream": "Loaded"}),
        "/images/name/json": (200, {"Id": DIGEST}),
        "/info": (200, {}),
    }
    engine.seconds = {"/images/load": 1.0, "/info": 2.0}
    client = DockerEngine()
    client.load(iter([b"archive"]), DIGEST, "name")
    with pytest.raises(CouldNotError) as caught:
        client.info()
    assert caught.value.problems[0].code == "ENGINE_UNREACHABLE"
    close(client)


def close(client: DockerEngine) -> None:
    for name in ("_client", "_patient"):
        made = client.__dict__.get(name)
        if made is not None:
            made.close()


def container(engine: FakeEngine, status: str, exit_code: int = 0) -> None:
    tty = {"Tty": False}
    state = {"Id": "c1", "Config": tty, "State": {"Status": status, "ExitCode": exit_code}}
    engine.answers = {
        "/containers/create": (201, {"Id": "c1"}),
        "/containers/c1/start": (204, None),
        "/containers/c1/kill": (204, None),
        "/containers/c1/wait": (200, {"StatusCode": 99}),
        "/containers/c1/logs": (200, None),
        "/containers/c1/json": (200, state),
        "/containers/c1": (204, None),
    }
    engine.seconds = {"/containers/c1/wait": 2.0}


@pytest.mark.parametrize("case_id", ["g5-04-timeout-as-failure"])
@pytest.mark.parametrize("exit_code", [0, 2])
def test_a_wait_that_broke_is_no_result_of_a_container_that_ended(
    case_id: str, engine: FakeEngine, exit_code: int
) -> None:
    container(engine, "exited", exit_code)
    client = DockerEngine()
    assert client.run(SPEC).exit_code == exit_code
    close(client)


@pytest.mark.parametrize("case_id", ["g5-04-timeout-as-failure"])
def test_a_container_that_runs_on_is_a_time_out_and_no_failed_test(
    case_id: str, engine: FakeEngine
) -> None:
    container(engine, "running")
    client = DockerEngine()
    with pytest.raises(CouldNotError) as caught:
        client.run(SPEC)
    assert caught.value.problems[0].code == "CONTAINER_TIMEOUT"
    assert caught.value.exit_code == 1  # and not 2, which a failed test has
    assert ("POST", "/v1.52/containers/c1/kill") in engine.calls
    close(client)


@pytest.mark.parametrize("case_id", ["g5-05-dockerignore"])
def test_a_context_has_what_was_rendered_and_needs_no_ignore_rules(
    case_id: str, tmp_path: Path
) -> None:
    root = project(tmp_path)
    (root / "images" / OURS[0] / "models.bin").write_bytes(b"x" * 1000)
    one = session(root)
    context = one.job(one.matrix.cells[0]).context
    assert sorted(context) == ["Dockerfile", "cell.json"]
    assert not any("dockerignore" in name for name in context)


@pytest.mark.parametrize("case_id", ["g5-06-unclosed-socket"])
def test_our_tests_fail_by_any_warning_and_a_socket_left_open_is_one(case_id: str) -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["filterwarnings"][0] == "error"
    assert not [line for line in options["filterwarnings"] if "ResourceWarning" in line]


TEXTS = [
    pytest.param(
        "docker.errors.DockerException: Error while fetching server API version: Not supported URL"
        " scheme http+docker",
        "DOCKER_SDK_TOO_OLD",
        ("docker>=7.1", "docker 6.1.3", "requests 2.32.3"),
        ("is the daemon running",),
        id="g5-07-http-docker-scheme",
    ),
    pytest.param(
        "client version 1.35 is too old. Minimum supported API version is 1.44, please upgrade",
        "API_VERSION_PINNED",
        ("DOCKER_API_VERSION", "1.44", "1.35"),
        (),
        id="g5-10-api-version-pinned",
    ),
    pytest.param(
        "error while creating mount source path '/var/run/docker.sock': mkdir: permission denied",
        "REAPER_SOCKET",
        ("TESTCONTAINERS_DOCKER_SOCKET_OVERRIDE", "RYUK_DISABLED"),
        (),
        id="g5-11-ryuk",
    ),
    pytest.param(
        'could not select device driver "" with capabilities: [[gpu]]',
        "GPUS_FLAG_ON_AMD",
        ("--device=/dev/kfd", "--device=/dev/dri"),
        (),
        id="g5-12-gpus-all",
    ),
    pytest.param(
        "image with reference x was found but does not provide any platform",
        "CONTAINERD_PLATFORM",
        ("by digest",),
        ("docker pull",),
        id="g5-13-push-only-local",
    ),
    pytest.param(
        "the --mount option requires BuildKit. Refer to https://docs.docker.com/go/buildkit/",
        "NEEDS_BUILDKIT",
        ("docker buildx",),
        (),
        id="g5-01-no-buildkit",
    ),
]


@pytest.mark.parametrize(("text", "code", "says", "never"), TEXTS)
def test_what_an_engine_says_is_told_by_its_cause(
    text: str, code: str, says: tuple[str, ...], never: tuple[str, ...]
) -> None:
    versions = {"docker": "6.1.3", "requests": "2.32.3", "urllib3": "2.2.1"}
    cause = first_cause(Output(text, exit_code=1, versions=versions))
    assert cause is not None
    assert (cause.code, cause.retryable) == (code, False)
    check_told(cause.problem, says, never)


@pytest.mark.parametrize("case_id", ["g5-12-gpus-all"])
def test_a_container_that_is_refused_is_told_with_the_cause(
    case_id: str, engine: FakeEngine
) -> None:
    refusal = 'could not select device driver "" with capabilities: [[gpu]]'
    engine.answers = {"/containers/create": (500, {"message": refusal})}
    client = DockerEngine()
    with pytest.raises(CouldNotError) as caught:
        client.run(SPEC)
    codes = [problem.code for problem in explained(caught.value).problems]
    assert codes == ["GPUS_FLAG_ON_AMD", "CONTAINER_NOT_STARTED"]
    close(client)


@pytest.mark.parametrize("case_id", ["g5-12-gpus-all"])
def test_our_containers_get_device_nodes_and_no_request_that_only_nvidia_answers(
    case_id: str, engine: FakeEngine
) -> None:
    container(engine, "exited")
    engine.seconds = {}
    client = DockerEngine()
    client.run(replace(SPEC, devices=("/dev/kfd:/dev/kfd:rwm",), groups=(992,)))
    asked = json.loads(engine.bodies["/containers/create"])["HostConfig"]
    assert not asked.get("DeviceRequests")
    assert [one["PathOnHost"] for one in asked["Devices"]] == ["/dev/kfd"]
    assert asked["GroupAdd"] == ["992"]
    close(client)


@pytest.mark.parametrize("case_id", ["g5-07-http-docker-scheme"])
def test_the_package_asks_for_an_sdk_that_fits(case_id: str) -> None:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "docker>=7.1" in metadata["dependencies"]


@pytest.mark.parametrize("case_id", ["g5-09-containerd-store"])
def test_the_store_is_read_from_the_engine_and_an_image_is_its_manifest(
    case_id: str, engine: FakeEngine
) -> None:
    other = Digest.of(b"an index around it")
    store = [["driver-type", "io.containerd.snapshotter.v1"]]
    engine.answers = {
        "/info": (200, {"ServerVersion": "29.0.0", "DriverStatus": store}),
        "/images/load": (200, {"stream": "Loaded"}),
        "/images/name/json": (200, {"Id": other}),
    }
    client = DockerEngine()
    assert client.check().containerd_store
    with pytest.raises(CouldNotError) as caught:
        client.load(iter([b""]), DIGEST, "name")
    check_told(caught.value.problems[0], ("LOAD_FAILED", DIGEST, other))
    close(client)


def test_a_stream_of_any_lines_is_read_and_an_error_in_it_counts() -> None:
    assert output_of_stream("plain\n[1, 2]\n").text == "plain\n[1, 2]"
    assert output_of_stream('{"status": "Pushed"}\n{"aux": {"Digest": "x"}}\n').exit_code is None
    assert output_of_stream('{"error": "no"}').exit_code == 1


def test_why_tells_the_cause_and_whether_to_try_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.write_text("ERROR: unexpected status: 502 Bad Gateway\n")
    assert run(["why", str(log)]) == 0
    assert "try again after 30 s" in capsys.readouterr().out
    assert run(["why", "--json", str(log)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "rocm-torch/why/v1"
    (cause,) = document["causes"]
    assert (cause["code"], cause["retryable"]) == ("REGISTRY_FAILED", True)
    assert run(["why", str(tmp_path / "none")]) == 64
