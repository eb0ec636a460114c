"""Tests as jobs of Slurm: submitted once, found again by their ids, cancelled when we are stopped.

Everything about a job lies in a folder of its own below ``.rocm-torch/slurm``, which the nodes must
see: the script, the report, the log, and ``job.json`` with the id. A run that was killed leaves the
job alone; the next call reads the id and waits for that job instead of submitting another.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from builder.engines.docker_engine import RunResult
from builder.engines.process import ProcessRunner
from builder.engines.slurm import ENDED, Ask, Slurm
from builder.errors import CouldNotError, Problem
from builder.oci import canonical_json
from builder.pipeline.executor import Ran
from builder.plan.job_script import EXIT, NODE, RCCL, REPORT, STDERR, fabric_environ, job_script
from builder.report.apptainer_output import bind_findings, loader_findings
from builder.report.distributed_output import DistributedRun, distributed_findings
from builder.report.progress import Event
from builder.report.records import atomic_write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from builder.pipeline.executor import TestTask
    from builder.pipeline.session import Session

SCHEMA = "rocm-torch/slurm-job/v1"
_POLL_SECONDS = 2.0
# A shared file system may show a file some seconds after Slurm says that the job has ended.
_LATE_POLLS = 5
_FAILED_POLLS = 20
_SLOWER, _SLOWEST = 1.1, 10
# A job of the self-test that ended at its limit: ranks that met and then said nothing this long.
_SILENCE_SECONDS = 60.0
_UNFINISHED = ("OUT_OF_MEMORY", "NODE_FAIL")
_REASONS = {
    "TIMEOUT": "it ran past its time limit; give it more with --time",
    "OUT_OF_MEMORY": "it used more memory than the job has; ask for a node with more",
    "CANCELLED": "somebody cancelled it; the same command submits it again",
    "PREEMPTED": "a job of higher priority took the node; the same command submits it again",
    "NODE_FAIL": "the node failed; the same command submits it again",
}


@dataclass(frozen=True, slots=True)
class _Job:
    """What ``job.json`` says; ``number`` is None between the intent and Slurm's answer."""

    name: str
    digest: str
    sif: str
    number: str | None = None

    def to_json(self) -> bytes:
        return canonical_json(
            {
                "schema": SCHEMA,
                "name": self.name,
                "digest": self.digest,
                "sif": self.sif,
                "job": self.number,
            }
        )


class SlurmExecutor:
    """Runs tests on the nodes of one cluster.

    Args:
        sifs: the SIF of each cell, on a file system that the nodes see.
        ask: what each job asks for.
        fabric: the machine's, such as ``cxi``; ranks that use TCP there fail the test.
        poll_seconds: time between two questions about a job's state.
    """

    def __init__(
        self,
        sifs: Mapping[str, Path],
        ask: Ask,
        *,
        fabric: str | None = None,
        poll_seconds: float = _POLL_SECONDS,
    ) -> None:
        self._sifs = sifs
        self._fabric = fabric
        self._ask = ask
        self._poll_seconds = poll_seconds
        self._active: dict[Path, str] = {}
        self._turn = threading.Lock()

    def run(self, session: Session, task: TestTask) -> Ran:
        """Submit the job of ``task``, or take it up, and wait for its end."""
        slurm = Slurm(session.tools.runner)
        folder = self._folder(session, task)
        job = self._take_up(session, slurm, task, folder) or self._submit(
            session, slurm, task, folder
        )
        number = job.number or ""
        with self._turn:
            self._active[folder] = job.name
        # Where this raises because the run is to end, stop() still has to find the job.
        state = self._wait(session, slurm, task, folder, number)
        with self._turn:
            self._active.pop(folder, None)
        return self._ran(task, folder, number, state)

    def stop(self, session: Session, /) -> int:
        """Cancel the jobs that are waited for, and return how many went.

        Started by a runner of its own: the run's has been told to start nothing more.
        """
        with self._turn:
            active = dict(self._active)
        slurm, left = Slurm(ProcessRunner()), []
        for folder, name in active.items():
            try:
                gone = slurm.cancel_named(name)
            except CouldNotError:
                gone = False
            if gone:
                (folder / "job.json").unlink(missing_ok=True)
                with self._turn:
                    self._active.pop(folder, None)
            else:  # its file stays, so that the same command takes it up
                left.append(name)
        if left:
            told = f"warning: not cancelled, scancel failed: {', '.join(left)}"
            session.tools.progress.say("", "slurm", told)
        return len(active) - len(left)

    def _folder(self, session: Session, task: TestTask) -> Path:
        return session.workspace.state.absolute() / "slurm" / task.built.cell / task.step

    def _take_up(self, session: Session, slurm: Slurm, task: TestTask, folder: Path) -> _Job | None:
        """Return the job that an earlier call submitted for this image, if it is worth waiting."""
        job = _read_job(folder / "job.json")
        if job is None:
            return None
        number = job.number or slurm.find(job.name)
        if number is None:
            return None
        same = job.digest == task.built.digest and job.sif == str(self._sifs[task.built.cell])
        state = slurm.state(number)
        if same and (state not in (None, *ENDED) or (folder / EXIT).exists()):
            said = f"takes up job {number} ({state or 'ended'})"
            session.tools.progress.say(task.built.cell, task.step, said)
            return replace(job, number=number)
        if not same and state not in (None, *ENDED):
            slurm.cancel(number)  # it tests another image, and would write into our folder
        return None

    def _submit(self, session: Session, slurm: Slurm, task: TestTask, folder: Path) -> _Job:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        sif = self._sifs[task.built.cell]
        name = f"rocm-torch-{uuid.uuid4().hex[:12]}"
        job = _Job(name, task.built.digest, str(sif))
        # The intent first: where we are killed before Slurm's answer is written, the name finds it.
        atomic_write(folder / "job.json", job.to_json())
        with self._turn:
            self._active[folder] = name
        script = folder / "job.sh"
        atomic_write(script, self._script(folder, sif, task.level))
        ask = replace(self._ask, constraint=task.gfx) if task.gfx else self._ask
        job = replace(job, number=slurm.submit(script, name, ask))
        atomic_write(folder / "job.json", job.to_json())
        session.tools.progress.say(task.built.cell, task.step, f"submitted as job {job.number}")
        return job

    def _script(self, folder: Path, sif: Path, level: str) -> bytes:
        return job_script(folder, sif, level, fabric_environ(self._fabric)).encode()

    def _wait(
        self, session: Session, slurm: Slurm, task: TestTask, folder: Path, number: str
    ) -> str:
        """Return the state in which the job ended; the longer it takes, the rarer it is asked.

        A controller that does not answer for a while says nothing about the job.
        """
        late, told, failures, pause = 0, "", 0, self._poll_seconds
        while True:
            session.tools.go_on()
            try:
                state, failures = slurm.state(number), 0
            except CouldNotError as error:
                failures += 1
                if failures > _FAILED_POLLS or error.problems[0].code == "STOPPED":
                    raise
                session.tools.stopping.wait(pause)
                continue
            if state != told:
                told = state or "forgotten by Slurm"
                doing = f"job {number} {told.lower()}"
                session.tools.progress.tell(Event(task.built.cell, task.step, "doing", doing))
            if state is None or state in ENDED:
                late += 1
                if (folder / EXIT).exists() or late > _LATE_POLLS or state not in _FINISHED:
                    return state or "COMPLETED"
                pause = self._poll_seconds
            session.tools.stopping.wait(pause)
            pause = min(pause * _SLOWER, self._poll_seconds * _SLOWEST)

    def _ran(self, task: TestTask, folder: Path, number: str, state: str) -> Ran:
        exit_file = folder / EXIT
        stderr = _text(folder / STDERR)
        (folder / "job.json").unlink(missing_ok=True)  # it has ended: the next test is another job
        ended = int(exit_file.read_text("ascii")) if exit_file.exists() else None
        self._judge(task, folder, number, state, stderr)
        # A check that memory ran out for is no failure of the image.
        if ended is None or (ended != 0 and state in _UNFINISHED):
            last = "\n".join((stderr + _text(folder / "job.log")).strip().splitlines()[-10:])
            raise CouldNotError(
                Problem(
                    code=f"SLURM_JOB_{state}",
                    what=f"job {number} ended as {state} and without a result",
                    where=f"{task.built.cell}, {folder}",
                    why=last or None,
                    fix=_REASONS.get(state, "read its log, job.log in that folder"),
                )
            )
        result = RunResult(ended, _text(folder / REPORT), stderr)
        host = {"executor": "slurm", "job": number, "node": _text(folder / NODE).strip()}
        return Ran(result, host)

    def _judge(self, task: TestTask, folder: Path, number: str, state: str, stderr: str) -> None:
        """Raise what the site did to the job, whether or not it left a result."""
        files = sorted(folder.glob(f"{RCCL}*"))
        silent = None
        if state == "TIMEOUT" and files:
            quiet = time.time() - max(path.stat().st_mtime for path in files)
            silent = quiet if quiet >= _SILENCE_SECONDS else None
        run = DistributedRun(
            stderr + "".join(map(_text, files)), self._fabric, fabric_environ(self._fabric), silent
        )
        findings = (*bind_findings(stderr), *loader_findings(stderr), *distributed_findings(run))
        errors = [finding for finding in findings if finding.severity == "error"]
        if errors:
            raise CouldNotError(
                Problem(one.code, one.summary, f"{task.built.cell}, job {number}", fix=one.fix)
                for one in errors
            )


# The script ran to its end, whatever it found: the file with its status will come.
_FINISHED = frozenset({None, "COMPLETED", "FAILED"})


def _read_job(path: Path) -> _Job | None:
    try:
        value: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return _Job(value["name"], value["digest"], value["sif"], value["job"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
