"""Ctrl-C and SIGTERM in the middle of real steps: nothing of ours goes on, and a run can follow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import pytest
from projects import REPO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from projects import Project

pytestmark = pytest.mark.engine

LONGEST = 120.0
SLEEP = "import time; time.sleep(600)\n"


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """Let children hear Ctrl-C, whatever started the tests: who ignores it hands that down."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Running:
    """A release in a process of its own, as a user would start it."""

    def __init__(self, project: Project, *words: str) -> None:
        self.project = project
        self.errors = project.root / "stderr"
        argv = [sys.executable, "-m", "builder", "--project", str(project.root)]
        argv += ["--facts", str(project.facts), *words]
        argv += ["release", "--registry", str(project.registry)]
        with self.errors.open("w") as stream:
            self.process = subprocess.Popen(
                argv,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                env={**os.environ, "PYTHONPATH": str(REPO)},
            )

    def wait_for(self, moment: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LONGEST
        while not moment():
            assert self.process.poll() is None, self.errors.read_text("utf-8")
            assert time.monotonic() < deadline, "the moment did not come"

    def stop(self, *numbers: signal.Signals) -> tuple[int, str]:
        """Send signals and return the exit code, and what was said."""
        for number in numbers:
            self.process.send_signal(number)
        code = self.process.wait(timeout=LONGEST)
        return code, self.errors.read_text("utf-8")


def processes_of(project: Project) -> list[str]:
    """Return the command lines of all processes that name the working copy."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if str(project.root) in words:
            found.append(words)
    return found


def containers_of(project: Project) -> list[str]:
    label = f"io.rocm-torch.workspace={project.root}"
    client = docker.from_env()
    try:
        found = client.containers.list(all=True, filters={"label": label})
        return [str(container.id) for container in found]
    finally:
        client.close()


def records(project: Project) -> set[str]:
    folder = project.root / ".rocm-torch/records"
    return {path.name for path in folder.glob("*/*.json")}


def building(project: Project) -> bool:
    """Tell whether a build runs: the export alone takes seconds, whatever BuildKit has cached."""
    return any("bake" in words for words in processes_of(project))


def test_ctrl_c_in_a_build_ends_it_and_the_same_command_completes(
    make_project: Callable[..., Project],
) -> None:
    project = make_project(cells=2)
    running = Running(project)
    running.wait_for(lambda: building(project))
    code, said = running.stop(signal.SIGINT)
    assert code == 130, said
    assert "steps are finished and recorded; this goes on from here:" in said
    assert f"rocm-torch --project {project.root}" in said
    assert "Traceback" not in said
    assert "BUILD_FAILED" not in said
    assert processes_of(project) == []
    assert not list((project.root / ".rocm-torch/exports").iterdir())
    assert [row["verdict"] for row in project.release()["cells"]] == ["pass", "pass"]


def test_a_stop_in_a_test_removes_its_container_and_keeps_what_was_finished(
    make_project: Callable[..., Project],
) -> None:
    project = make_project()
    main = project.root / "images/selftest/rocm_torch_selftest/__main__.py"
    program = main.read_text("utf-8")
    main.write_text(program.replace("import json\n", f"import json\n{SLEEP}", 1), "utf-8")
    running = Running(project)
    running.wait_for(lambda: bool(containers_of(project)))
    code, said = running.stop(signal.SIGTERM)
    assert code == 143, said
    assert "1 of 4 steps are finished" in said
    assert "Traceback" not in said
    assert containers_of(project) == []
    assert records(project) == {"build.json"}
    main.write_text(program, "utf-8")
    assert [row["verdict"] for row in project.release()["cells"]] == ["pass"]
    assert containers_of(project) == []


def test_a_second_ctrl_c_ends_at_once_and_leaves_no_process(
    make_project: Callable[..., Project],
) -> None:
    project = make_project()
    running = Running(project, "--progress", "json")
    running.wait_for(lambda: building(project))
    code, said = running.stop(signal.SIGINT, signal.SIGINT)
    assert code == 130, said
    assert "Traceback" not in said
    deadline = time.monotonic() + LONGEST
    while processes_of(project):
        assert time.monotonic() < deadline, processes_of(project)
