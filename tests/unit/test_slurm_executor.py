"""A run that is stopped while it waits for a job cancels that job, whichever thread is first."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from builder.engines.process import ProcessRunner
from builder.engines.slurm import Ask
from builder.errors import CouldNotError
from builder.pipeline.executor import TestTask
from builder.pipeline.session import Session
from builder.pipeline.slurm_executor import SlurmExecutor
from builder.pipeline.workspace import Tools, Workspace
from builder.report.progress.events import Silent
from builder.report.records import BuildRecord

if TYPE_CHECKING:
    from pathlib import Path

# Stand-ins for Slurm's commands: a job runs until it is cancelled, and each call is written down.
STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >>"{log}"
case "$(basename "$0")" in
    sbatch) echo 7 ;;
    squeue) echo RUNNING ;;
esac
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put stand-ins for Slurm first on PATH; return the file of their calls."""
    programs, log = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    for name in ("sbatch", "squeue", "scancel"):
        path = programs / name
        path.write_text(STAND_IN.format(log=log), "ascii")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return log


def session(root: Path) -> Session:
    tools = Tools(ProcessRunner(), lambda: datetime.now(UTC), time.monotonic, Silent())
    return Session(Workspace(root), tools, root / "matrix.lock", root / "matrix.yaml")


def task() -> TestTask:
    built = BuildRecord(
        cell="c",
        step="build",
        finished=datetime.now(UTC),
        seconds=0,
        digest="sha256:" + "0" * 64,
        inputs={},
        size=1,
    )
    return TestTask(built, "smoke")


def test_a_job_is_cancelled_though_its_thread_has_ended_before_the_sweep(
    tmp_path: Path, log: Path
) -> None:
    run, executor = session(tmp_path), SlurmExecutor({"c": tmp_path / "c.sif"}, Ask())
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            executor.run(run, task())
        except CouldNotError as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    deadline = time.monotonic() + 30
    while not log.exists() or "squeue" not in log.read_text("ascii"):
        assert time.monotonic() < deadline
        os.sched_yield()
    run.tools.stopping.set()
    thread.join(30)
    assert [error.problems[0].code for error in ended] == ["STOPPED"]  # type: ignore[attr-defined]
    folder = tmp_path / ".rocm-torch/slurm/c/test-smoke"
    name = json.loads((folder / "job.json").read_text("utf-8"))["name"]
    assert executor.stop(run) == 1
    assert f"scancel --name={name}" in log.read_text("ascii")
    assert not (folder / "job.json").exists()
    assert executor.stop(run) == 0


def test_a_job_whose_id_never_came_back_is_found_by_its_name(tmp_path: Path, log: Path) -> None:
    run = session(tmp_path)
    folder = tmp_path / ".rocm-torch/slurm/c/test-smoke"
    folder.mkdir(parents=True)
    sif = tmp_path / "c.sif"
    intent = {"name": "n", "digest": task().built.digest, "sif": str(sif), "job": None}
    (folder / "job.json").write_text(json.dumps(intent), "utf-8")
    run.tools.stopping.set()
    with pytest.raises(CouldNotError, match="STOPPED"):
        SlurmExecutor({"c": sif}, Ask()).run(run, task())
    calls = log.read_text("ascii")
    assert "squeue --noheader --states=all --format=%i --name=n" in calls
    assert "sbatch" not in calls


# A stand-in for a cluster: a job does at once what the script `hook` says, in its folder; `state`
# has what squeue says of it, and without that file the controller does not answer.
CLUSTER = """#!/bin/sh
case "$(basename "$0")" in
    sbatch)
        for last in "$@"; do :; done
        sh "{root}/hook" "$(dirname "$last")"
        echo 7
        ;;
    squeue)
        cat "{root}/state" 2>/dev/null && exit
        mv "{root}/later" "{root}/state" 2>/dev/null
        echo "slurm_load_jobs error: Socket timed out on send/recv operation" >&2
        exit 1
        ;;
    scancel) exit {scancel} ;;
esac
"""


def cluster(
    root: Path, monkeypatch: pytest.MonkeyPatch, hook: str, state: str, *, scancel: int = 0
) -> None:
    programs = root / "cluster"
    programs.mkdir()
    for name in ("sbatch", "squeue", "scancel"):
        path = programs / name
        path.write_text(CLUSTER.format(root=root, scancel=scancel), "ascii")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    (root / "hook").write_text(f'cd "$1" || exit 1\n{hook}\n', "ascii")
    (root / "later").write_text(state + "\n", "ascii")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


def executor(root: Path, fabric: str | None = None) -> SlurmExecutor:
    return SlurmExecutor({"c": root / "c.sif"}, Ask(), fabric=fabric, poll_seconds=0.01)


def test_a_controller_that_does_not_answer_for_a_while_ends_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster(tmp_path, monkeypatch, "echo '{}' >report.json; echo 0 >exit", "COMPLETED")
    ran = executor(tmp_path).run(session(tmp_path), task())
    assert (ran.result.exit_code, ran.host["job"]) == (0, "7")


def test_a_check_that_memory_ran_out_for_is_the_jobs_failure_and_not_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster(tmp_path, monkeypatch, "echo '{}' >report.json; echo 2 >exit", "OUT_OF_MEMORY")
    with pytest.raises(CouldNotError, match="SLURM_JOB_OUT_OF_MEMORY"):
        executor(tmp_path).run(session(tmp_path), task())


def test_a_bind_that_is_gone_is_named_though_the_job_left_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "FATAL: container creation failed: mount source /gone doesn't exist"
    cluster(tmp_path, monkeypatch, f'echo "{said}" >stderr', "FAILED")
    with pytest.raises(CouldNotError, match="BIND_SOURCE_MISSING"):
        executor(tmp_path).run(session(tmp_path), task())


def test_rccl_that_went_over_tcp_is_found_in_the_files_that_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = "echo '{}' >report.json; echo 0 >exit; echo 'NCCL INFO Using network Socket' >rccl.n.1"
    cluster(tmp_path, monkeypatch, hook, "COMPLETED")
    with pytest.raises(CouldNotError, match="RCCL_TCP_FALLBACK"):
        executor(tmp_path, "cxi").run(session(tmp_path), task())


def test_a_job_that_ran_into_its_limit_in_silence_is_told_as_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = "echo 'NCCL INFO Using network cxi' >rccl.n.1; touch -d '5 minutes ago' rccl.n.1"
    cluster(tmp_path, monkeypatch, hook, "TIMEOUT")
    with pytest.raises(CouldNotError, match="DIST_HANG"):
        executor(tmp_path, "cxi").run(session(tmp_path), task())


def test_a_job_that_could_not_be_cancelled_is_kept_for_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster(tmp_path, monkeypatch, ":", "RUNNING", scancel=1)
    run, jobs = session(tmp_path), executor(tmp_path)
    run.tools.stopping.set()
    with pytest.raises(CouldNotError, match="STOPPED"):
        jobs.run(run, task())
    assert jobs.stop(run) == 0
    assert (tmp_path / ".rocm-torch/slurm/c/test-smoke/job.json").exists()
