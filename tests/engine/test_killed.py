"""A release that is killed with no warning, at every step boundary and at random moments."""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from projects import REPO

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from projects import Project

pytestmark = pytest.mark.engine

STEPS = ("build", "test-smoke", "sbom", "publish")
# Two reports of one test differ in their bytes: what was published with the first is out of date
# as soon as there is the second, also for a run that is killed between the two.
UNDONE_BY = {"test-smoke": ("publish",)}
RANDOM_MOMENTS = 10
LONGEST = 120.0


class Killable:
    """A release in a process of its own that can be killed as the machine might."""

    def __init__(self, project: Project) -> None:
        self._records = project.root / ".rocm-torch" / "records"
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "builder", "--project", str(project.root)),
                *("--facts", str(project.facts), "release", "--registry", str(project.registry)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(REPO)},
        )

    def kill_when(self, moment: Callable[[], bool]) -> bool:
        """Kill as soon as ``moment`` holds; False where the release ended before."""
        deadline = time.monotonic() + LONGEST
        while not moment():
            if self._process.poll() is not None:
                return False
            assert time.monotonic() < deadline, "the release neither went on nor ended"
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        return True


def past(until: float) -> bool:
    return time.monotonic() >= until


def record(project: Project, step: str) -> Path:
    (folder,) = (project.root / "images").glob("cpu-torch*")
    return project.root / ".rocm-torch" / "records" / folder.name / f"{step}.json"


def finished(project: Project) -> dict[str, bytes]:
    """Return the records of the steps that are finished."""
    project.done("render")
    paths = {step: record(project, step) for step in STEPS}
    return {step: path.read_bytes() for step, path in paths.items() if path.exists()}


def goes_on(project: Project, digest: str | None) -> str:
    """Run the same command again: it completes, repeats nothing, and gives the same digest."""
    before = finished(project)
    (row,) = project.release()["cells"]
    after = finished(project)
    assert set(after) == set(STEPS)
    assert {step: after[step] for step in before} == before
    assert digest in (None, row["digest"])
    return str(row["digest"])


def test_a_release_killed_at_every_boundary_goes_on_and_repeats_nothing(
    make_project: Callable[..., Project],
) -> None:
    project = make_project()
    project.done("render")
    for step in STEPS:
        path = record(project, step)
        Killable(project).kill_when(path.exists)
        assert path.exists()
    goes_on(project, None)


def test_a_release_killed_at_ten_random_moments_goes_on_with_the_same_digest(
    make_project: Callable[..., Project],
) -> None:
    project = make_project()
    chance = random.Random(20261201)  # noqa: S311 - moments, not secrets
    digest = None
    for _ in range(RANDOM_MOMENTS):
        until = time.monotonic() + chance.uniform(0.2, 9.0)
        if not Killable(project).kill_when(functools.partial(past, until)):
            digest = goes_on(project, digest)
            step = chance.choice(STEPS)
            for one in (step, *UNDONE_BY.get(step, ())):
                project.forget(one)
    goes_on(project, digest)


def test_a_second_run_in_one_working_copy_says_who_works_there(
    make_project: Callable[..., Project],
) -> None:
    project = make_project()
    running = Killable(project)
    lock = project.root / ".rocm-torch" / "run.lock"
    running.kill_when(lambda: lock.exists() and second_is_refused(project))


def second_is_refused(project: Project) -> bool:
    result = project.call("--no-wait", "sbom")
    return result.returncode == 1 and "rocm-torch release" in result.stderr


def test_a_damaged_record_is_set_aside_and_its_step_repeated(
    make_project: Callable[..., Project],
) -> None:
    project = make_project()
    first = project.release()["cells"][0]["digest"]
    path = record(project, "sbom")
    path.write_text("{", "ascii")
    assert project.release()["cells"][0]["digest"] == first
    assert path.with_suffix(".damaged").exists()
    assert path.exists()
