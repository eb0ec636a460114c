from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from samples import OURS, ROOT, project

from builder import __version__
from builder.cli.main import app, run

DUPLICATE = '    torch: ["2.6.0", "1.13.1"]'
SELECTING = ("matrix", "render", "plan", "bake", "build", "test", "sbom", "publish", "release")


def commands() -> list[tuple[str, ...]]:
    """Return the words of every command, groups included."""
    found: list[tuple[str, ...]] = []
    todo: list[tuple[tuple[str, ...], Any]] = [((), typer.main.get_command(app))]
    while todo:
        words, command = todo.pop()
        found.append(words)
        todo += [((*words, name), sub) for name, sub in getattr(command, "commands", {}).items()]
    return sorted(found)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a locked working copy that no test changes."""
    return project(tmp_path_factory.mktemp("ours"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a locked working copy of the test's own."""
    return project(tmp_path)


def call(root: Path, *words: str) -> int:
    return run(["--project", str(root), *words])


def failure(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the one object on standard output; nothing else may be there."""
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["schema"] == "rocm-torch/error/v1"
    assert document["problems"]
    return document


def process(root: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "builder", "--project", str(root), *words],
        cwd=ROOT,
        env={**os.environ, "HOME": str(root), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--help"]) == 0
    told = capsys.readouterr().out
    assert "Usage: rocm-torch" in told
    if words not in {("registry",)}:
        assert f"Example: rocm-torch {' '.join(words)}".strip() in told


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"rocm-torch {__version__}\n"


def test_a_call_without_a_command_shows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 64
    told = capsys.readouterr().err
    assert "release" in told
    assert "Example: rocm-torch" in told
    assert run(["registry"]) == 64
    assert "Missing command" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("mtrix",),
        ("matrix", "--no-such-option"),
        ("build", "--jobs", "0"),
        ("test", "--level", "soon"),
        ("schema",),
        ("schema", "nothing"),
        ("matrix", "nothing-9"),
        ("matrix", "axis=1"),
        ("matrix", "rocm>=x"),
        ("matrix", ""),
        ("matrix", "cpu,"),
    ],
)
def test_a_bad_call_is_64_in_words_and_in_json(
    ours: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(ours, *words) == 64
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert call(ours, *words, "--json") == 64
    document = failure(capsys)
    assert (document["error"], document["exit_code"]) == ("bad-call", 64)


@pytest.mark.parametrize("command", SELECTING)
def test_a_selector_that_names_nothing_is_told_by_every_command(
    ours: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(ours, command, "rocm>=99") == 64
    assert "rocm>=99" in capsys.readouterr().err


def test_the_matrix_is_shown_with_locks_and_tags(
    ours: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(ours, "matrix", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "rocm-torch/matrix/v1"
    assert [cell["id"] for cell in document["cells"]] == list(OURS)
    assert all(cell["locked"] and cell["base"]["digest"] for cell in document["cells"])
    assert "docker.io/ourorg/rocm-torch:cpu" in document["cells"][0]["tags"]
    assert len(document["excluded"]) == 6
    assert call(ours, "matrix", "--excluded") == 0
    assert "DISTRO_HAS_NO_SUCH" in capsys.readouterr().out
    assert call(ours, "matrix", "py*", "python=3.11") == 64
    assert call(ours, "matrix", "python=3.11") == 0


def test_a_valid_matrix_is_0(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(ours, "check") == 0
    assert "2 cells" in capsys.readouterr().out


def test_all_that_is_wrong_with_a_matrix_is_told_at_once_by_line(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy / "matrix.yaml"
    text = path.read_text()
    text = text.replace("    purpose:", "    purpos: x\n    purpose:")
    text = text.replace('python: ["3.13", "3.11"]\n    flavour', "python: [3.10]\n    flavour")
    path.write_text(text)
    lines = text.splitlines()
    unknown = next(number for number, line in enumerate(lines, 1) if "purpos:" in line)
    unquoted = next(number for number, line in enumerate(lines, 1) if "[3.10]" in line)
    assert call(copy, "check") == 2
    told = capsys.readouterr().err
    assert f"matrix.yaml:{unknown}: " in told
    assert f"matrix.yaml:{unquoted}: " in told
    assert '"3.10"' in told
    assert "Traceback" not in told
    assert call(copy, "check", "--json") == 2
    assert len(failure(capsys)["problems"]) >= 2


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("    purpose:", "    purpos: x\n    purpose:", "purpos"),
        (DUPLICATE, '    torch: ["2.6.0", "2.6"]', "matrix.yaml:"),
        ("image: ourorg/rocm-torch", "image: ourorg/rocm-torch:tag", "repository"),
        ("lanes:\n", "lanes:\n  cpu: 1\n", "cpu"),
        ("version: 1", "version: 2", "version"),
        ("version: 1", "version: [", "matrix.yaml:"),
        ('    flavour: ["runtime"]', '    flavour: ["runtime"]\n    colour: ["red"]', "colour"),
    ],
)
def test_a_matrix_that_is_not_valid_is_2_for_every_command(
    copy: Path, old: str, new: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy / "matrix.yaml"
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, new))
    for command in ("check", "matrix", "build"):
        assert call(copy, command) == 2
        error = capsys.readouterr().err
        assert told in error
        assert "matrix.yaml:" in error
        assert "Traceback" not in error


def test_one_cell_from_two_lanes_is_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copy / "matrix.yaml"
    text = path.read_text()
    lane = text[text.index("  cpu:\n") :].replace("  cpu:\n", "  again:\n")
    path.write_text(text + "\n" + lane.replace("default: true", "default: false"))
    assert call(copy, "check", "--json") == 2
    problems = failure(capsys)["problems"]
    assert "DUPLICATE_CELL" in {problem["code"] for problem in problems}
    assert all(problem["where"].startswith("matrix.yaml:") for problem in problems)


def test_a_folder_without_a_matrix_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path, "check") == 2
    assert "NO_MATRIX" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(Path("/dev/null/x"), "check") == 1
    told = capsys.readouterr().err
    assert "STATE_NOT_WRITABLE" in told
    assert "Traceback" not in told


def test_a_damaged_lock_is_2(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "matrix.lock").write_text("<<<<<<< ours\n")
    assert call(copy, "build", "--json") == 2
    assert failure(capsys)["problems"][0]["code"] == "LOCK_DAMAGED"


@pytest.mark.parametrize(
    "command", [("build",), ("release", "--registry", "localhost:1"), ("publish",), ("sbom",)]
)
def test_cells_that_are_not_locked_are_2_and_all_named(
    tmp_path: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path, locked=False)
    assert call(root, *command, "--json") == 2
    problems = failure(capsys)["problems"]
    assert {problem["code"] for problem in problems} == {"UNLOCKED"}
    assert [problem["what"].split()[0] for problem in problems] == list(OURS)


def test_unlocked_cells_are_shown_and_planned_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path, locked=False)
    assert call(root, "matrix", "--json") == 0
    assert not any(cell["locked"] for cell in json.loads(capsys.readouterr().out)["cells"])
    assert call(root, "plan", "--json") == 0
    states = {cell["state"] for cell in json.loads(capsys.readouterr().out)["cells"]}
    assert states == {"unlocked"}
    assert call(root, "render", "--check") == 0


def test_a_plan_says_what_was_never_built(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(ours, "plan") == 0
    assert capsys.readouterr().out.count("never built") == 2


def test_a_step_on_an_image_that_was_not_built_is_2(
    ours: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(ours, "-q", "sbom", "--json") == 2
    problems = failure(capsys)["problems"]
    assert {problem["code"] for problem in problems} == {"NOT_BUILT"}
    assert len(problems) == 2


def test_contexts_that_fit_are_0_and_drift_is_2(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(copy, "render", "--check") == 0
    capsys.readouterr()
    path = copy / "images" / OURS[0] / "Dockerfile"
    good = path.read_bytes()
    path.write_text("FROM else\n")
    assert call(copy, "render", "--check", "--json") == 2
    assert failure(capsys)["problems"][0]["where"] == f"images/{OURS[0]}/Dockerfile"
    assert path.read_text() == "FROM else\n"
    assert call(copy, "render") == 0
    assert path.read_bytes() == good
    (copy / "images/old").mkdir()
    capsys.readouterr()
    assert call(copy, "render", "--check") == 2
    assert "git rm -r images/old" in capsys.readouterr().err
    assert call(copy, "render", "--check", OURS[0]) == 0


def test_the_bake_file_names_every_cell_and_is_the_same_twice(
    ours: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(ours, "bake") == 0
    first = capsys.readouterr().out
    assert call(ours, "bake") == 0
    assert capsys.readouterr().out == first
    targets = json.loads(first)["target"]
    assert set(targets) == {name.replace(".", "_") for name in OURS}
    assert all(Path(one["context"], "Dockerfile").is_file() for one in targets.values())


@pytest.mark.parametrize(("name", "holds"), [("matrix", "lanes"), ("host-state", "nodes")])
def test_a_schema_is_printed(name: str, holds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", name]) == 0
    assert holds in json.loads(capsys.readouterr().out)["properties"]


@pytest.mark.parametrize("host", ["a b", "host:port", "host:70000", "http://host", "host/path"])
def test_a_registry_that_is_no_host_is_a_bad_call(
    ours: Path, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(ours, "publish", "--registry", host, "--json") == 64
    assert failure(capsys)["problems"][0]["code"] == "BAD_REGISTRY"


def test_the_nearest_folder_with_a_matrix_is_the_project(
    ours: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ours / "images" / "rootfs")
    assert run(["matrix"]) == 0
    assert OURS[0] in capsys.readouterr().out
    assert not (ours / "images" / "rootfs" / ".rocm-torch").exists()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, typer.Abort, EOFError])
def test_ctrl_c_is_130_and_says_that_the_run_can_go_on(
    ours: Path,
    kind: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stopped(*_: object) -> None:
        raise kind

    monkeypatch.setattr("builder.cli.matrix_commands.selected", stopped)
    assert call(ours, "matrix") == 130
    assert "goes on from here" in capsys.readouterr().err


def test_a_real_interrupt_while_waiting_for_a_registry_is_130(ours: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        host = f"127.0.0.1:{server.getsockname()[1]}"
        with process(ours, "release", "--registry", host) as program:
            connection, _ = server.accept()
            with connection:
                program.send_signal(signal.SIGINT)
                out, error = program.communicate(timeout=60)
    assert program.returncode == 130
    assert out == ""
    assert "Traceback" not in error


def test_an_engine_that_is_not_there_is_1_before_anything_is_built(copy: Path) -> None:
    with process(copy, "build", OURS[0], DOCKER_HOST="unix:///nowhere/docker.sock") as program:
        out, error = program.communicate(timeout=60)
    assert program.returncode == 1
    assert out == ""
    assert error.count("error: ") == 1
    assert "ENGINE_UNREACHABLE" in error
    assert "Traceback" not in error
    assert not list((copy / ".rocm-torch").glob("logs/**/*.log"))
    assert not (copy / ".rocm-torch" / "stage").exists()
