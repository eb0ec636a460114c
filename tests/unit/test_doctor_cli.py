"""``rocm-torch doctor`` as a program: exit codes, JSON, saved states, images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from builder.cli.main import run
from builder.engines.process import Command, Completed
from builder.errors import CouldNotError, Problem
from builder.host.schema import host_state_json_schema
from builder.host.snapshot import Engine, HostSnapshot, to_document
from builder.pipeline.host_state import image_configuration, surroundings

HOSTS = Path(__file__).parents[1] / "cases" / "hosts"
LAPTOP = HOSTS / "laptop-igpu-dgpu.json"


def doctor(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = run(["doctor", *words])
    return status, capsys.readouterr().out


def state(tmp_path: Path, **changes: Any) -> str:
    path = tmp_path / "state.json"
    path.write_text(json.dumps(to_document(HostSnapshot(**changes))))
    return str(path)


def test_a_healthy_host_passes_with_exit_0(capsys: pytest.CaptureFixture[str]) -> None:
    status, printed = doctor(capsys, "--host-state", str(LAPTOP))
    assert status == 0
    assert printed.startswith("verdict: pass")


def test_an_error_is_exit_2_and_the_json_has_the_shape_of_the_design(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = state(tmp_path, container="docker")
    status, printed = doctor(capsys, "--host-state", given, "--json")
    document = json.loads(printed)
    assert (status, document["schema"]) == (2, "rocm-torch/doctor/v1")
    assert document["verdict"] == "fail"
    assert document["findings"][0].keys() >= {"code", "severity", "summary", "evidence", "fix"}
    assert "run_args" in document


def test_a_host_without_a_gpu_is_exit_3(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = state(tmp_path, kernel="6.1.0", modules=(), pci_gpus=())
    assert doctor(capsys, "--host-state", given)[0] == 3


def test_a_machine_without_a_pci_bus_has_no_gpu_and_does_not_pass(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert doctor(capsys, "--root", str(tmp_path))[0] == 3


def test_the_checklist_has_five_points(capsys: pytest.CaptureFixture[str]) -> None:
    status, printed = doctor(capsys, "--host-state", str(LAPTOP), "--preflight", "--json")
    points = json.loads(printed)["preflight"]
    assert status == 0
    assert [point["result"] for point in points] == ["pass", "pass", "open", "open", "pass"]


def test_a_message_that_somebody_saw_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    _, printed = doctor(
        capsys, "--host-state", str(LAPTOP), "--error", "HIP error: invalid device function"
    )
    assert "NO_KERNEL_FOR_GPU" in printed


def test_a_saved_state_gives_the_same_answer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.json"
    first = doctor(capsys, "--host-state", str(LAPTOP), "--save", str(copy))
    assert doctor(capsys, "--host-state", str(copy)) == first


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "x"}', '{"schema"'])
def test_a_file_that_is_no_state_is_a_bad_call(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert run(["doctor", "--host-state", str(path)]) == 64


def test_an_image_that_no_engine_has_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    status, printed = doctor(capsys, "--host-state", str(LAPTOP), "no/such:image")
    assert status == 0
    assert "no/such:image was not compared" in printed


@pytest.mark.parametrize("path", sorted(HOSTS.glob("*.json")), ids=lambda path: path.stem)
def test_the_published_schema_takes_each_saved_host(path: Path) -> None:
    validator = Draft202012Validator(host_state_json_schema())
    document = json.loads(path.read_text("utf-8"))
    assert [error.message for error in validator.iter_errors(document)] == []
    assert list(validator.iter_errors({**document, "nonsense": 1}))
    assert list(validator.iter_errors({**document, "uid": "root"}))


class Programs:
    """Answers by the first words of a call; a program without an answer is not there."""

    def __init__(self, **answers: str | None) -> None:
        self.answers = answers

    def run(self, command: Command, on_line: object = None) -> Completed:  # noqa: ARG002
        name = "_".join(word for word in command.argv[:2] if not word.startswith("-"))
        if name not in self.answers:
            raise CouldNotError(Problem("TOOL_MISSING", f"{name} is not there"))
        told = self.answers[name]
        if told is None:
            raise CouldNotError(Problem("TOOL_TIMEOUT", f"{name} took too long"))
        return Completed(command.argv, 0, told, "", 0.0)


def test_engines_say_what_they_are() -> None:
    docker = {
        "ServerVersion": "29.1.0",
        "SecurityOptions": ["name=seccomp", "name=rootless"],
        "DefaultRuntime": "runc",
        "OperatingSystem": "Debian",
    }
    podman = {
        "host": {"security": {"rootless": True}, "ociRuntime": {"name": "crun"}},
        "version": {"Version": "5.2.2"},
    }
    around = surroundings(
        Programs(
            docker_info=json.dumps(docker),
            docker_version=json.dumps({"ApiVersion": "1.52", "MinAPIVersion": "1.44"}),
            podman_info=json.dumps(podman),
            apptainer="apptainer version 1.4.0\n",
            dmesg="[1.0] amdgpu: hello\n[1.1] usb: hello\n",
        ),
        {},
        Path("/"),
    )
    assert around.engines == (
        Engine("docker", True, "29.1.0", "runc", api="1.52", min_api="1.44"),
        Engine("podman", True, "5.2.2", "crun"),
        Engine("apptainer", version="1.4.0"),
    )
    assert around.dmesg == ("[1.0] amdgpu: hello",)


@pytest.mark.parametrize("told", ["", "{", "[]", "null", "not json"])
def test_an_engine_that_answers_nonsense_is_none(told: str) -> None:
    around = surroundings(Programs(docker_info=told, podman_info=told, dmesg=None), {}, Path("/"))
    assert around.engines == ()


def test_no_program_is_asked_about_another_root(tmp_path: Path) -> None:
    around = surroundings(Programs(), {}, tmp_path, told="a message")
    assert (around.engines, [tool.name for tool in around.tools]) == ((), ["error"])


def test_an_image_is_described_by_its_engine() -> None:
    config = [{"Config": {"Labels": {"a": "b"}, "User": "1000"}, "Size": 7}]
    found = image_configuration(Programs(docker_image=json.dumps(config)), "docker", "x")
    assert found == ({"a": "b"}, "1000", 7)
    assert image_configuration(Programs(docker_image="[]"), "docker", "x") is None
