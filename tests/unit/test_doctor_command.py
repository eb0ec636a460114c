"""The command doctor: saved hosts, what it exits with, what it never costs."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from builder.cli.main import run
from builder.facts import load_facts
from builder.host.known import host_facts
from builder.host.rules import facts_to_document
from builder.host.shipped import SHIPPED, shipped_facts

ROOT = Path(__file__).parents[2]
HOSTS = sorted((ROOT / "tests/cases/hosts").glob("*.json"))


def state(folder: Path, **members: object) -> str:
    file = folder / "host.json"
    file.write_text(json.dumps({"schema": "rocm-torch/host-state/v1", **members}))
    return str(file)


def test_the_shipped_facts_are_those_of_the_facts_package(
    request: pytest.FixtureRequest,
) -> None:
    text = json.dumps(facts_to_document(host_facts(load_facts())), indent=1, sort_keys=True) + "\n"
    if request.config.getoption("--update-golden"):
        SHIPPED.write_text(text)
    assert SHIPPED.read_text() == text, "pytest --update-golden writes the file anew"
    assert facts_to_document(shipped_facts()) == json.loads(text)


@pytest.mark.parametrize("host", HOSTS, ids=lambda path: path.stem)
def test_a_healthy_host_passes(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--host-state", str(host), "--preflight", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "rocm-torch/doctor/v1"
    assert document["verdict"] == "pass"
    assert len(document["preflight"]) == 5
    assert not [one for one in document["findings"] if one["severity"] == "error"]


def test_the_report_fits_a_screen_and_begins_with_the_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [{"path": "/dev/kfd", "gid": 992}]
    nodes += [{"path": f"/dev/dri/renderD{128 + n}", "gid": 993} for n in range(8)]
    file = state(tmp_path, uid=1000, process_groups=[1000], container="docker", nodes=nodes)
    assert run(["doctor", "--host-state", file]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert lines[0].startswith("verdict: fail")
    assert next(n for n, line in enumerate(lines) if "KFD_PERMISSION" in line) < 4
    assert any("--group-add 992 --group-add 993" in line for line in lines)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "rocm-torch/host-state/v1", "x": 1}'])
def test_what_is_no_saved_host_is_a_bad_call_and_no_traceback(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "host.json"
    file.write_text(text)
    assert run(["doctor", "--host-state", str(file)]) == 64
    assert str(file) in capsys.readouterr().err


def test_a_saved_host_is_judged_as_it_was_and_does_not_name_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "alicia")
    monkeypatch.setenv("HF_HOME", f"/scratch/alicia/{platform.node()}")
    saved = tmp_path / "saved.json"
    code = run(["doctor", "--save", str(saved), "--json"])
    first = json.loads(capsys.readouterr().out)
    assert "alicia" not in saved.read_text()
    assert run(["doctor", "--host-state", str(saved), "--json"]) == code
    again = json.loads(capsys.readouterr().out)
    assert [one["code"] for one in again["findings"]] == [one["code"] for one in first["findings"]]


def test_a_host_is_judged_without_the_libraries_that_take_long_to_load(tmp_path: Path) -> None:
    file = state(tmp_path, kernel="6.8.0", pci_gpus=[])
    code = (
        "import sys; from builder.cli.main import run; "
        f"run(['doctor', '--host-state', {file!r}]); "
        "slow = {'yaml', 'docker', 'httpx', 'jinja2', 'builder.facts.loader'}; "
        "print(sorted(slow & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("host", "docker", "podman"),
    [
        (
            "rx7900xtx-ubuntu24.04",
            ["--device=/dev/kfd", "--device=/dev/dri", "--group-add=992"],
            ["--device=/dev/kfd", "--device=/dev/dri/renderD128", "--group-add=992"],
        ),
        (
            "mi300x8-rhel9-podman",
            ["--device=/dev/kfd", "--device=/dev/dri", "--group-add=105"],
            ["--device=/dev/kfd", "--group-add=keep-groups"],
        ),
        (
            "laptop-igpu-dgpu",
            ["--device=/dev/kfd", "--device=/dev/dri", "--group-add=109"],
            ["--device=/dev/dri/renderD129", "--group-add=109"],
        ),
    ],
)
def test_the_arguments_of_a_healthy_host_are_told_for_each_engine(
    host: str, docker: list[str], podman: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = ROOT / f"tests/cases/hosts/{host}.json"
    assert run(["doctor", "--host-state", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["run_args"]
    assert set(docker) <= set(told["docker"])
    assert set(podman) <= set(told["podman"])
    assert not any(
        "privileged" in word or "seccomp" in word for word in told["docker"] + told["podman"]
    )


@pytest.mark.parametrize("members", [{"kernel": "6.8.0"}, {"container": "docker"}])
def test_where_there_is_nothing_to_pass_in_there_are_no_arguments(
    members: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["doctor", "--host-state", state(tmp_path, **members), "--json"])
    assert json.loads(capsys.readouterr().out)["run_args"] == {"docker": [], "podman": []}


def test_on_wsl_no_kfd_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = state(
        tmp_path,
        kernel="6.6.87.2-microsoft-standard-WSL2",
        nodes=[{"path": "/dev/dxg", "mode": 0o666}],
    )
    run(["doctor", "--host-state", file, "--json"])
    told = json.loads(capsys.readouterr().out)["run_args"]
    assert any("/dev/dxg" in word for word in told["docker"])
    assert not any("/dev/kfd" in word for word in told["docker"] + told["podman"])
