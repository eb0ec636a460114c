"""Adapter for Slurm: submits a job, says in which state it is, cancels it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.engines.process import Command
from builder.errors import CouldNotError, Problem

if TYPE_CHECKING:
    from pathlib import Path

    from builder.engines.process import Completed, Runner

_SECONDS = 60.0
# What Slurm's own manual calls states of a job that has ended.
ENDED = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
    }
)
_FORGOTTEN = "Invalid job id"


@dataclass(frozen=True, slots=True)
class Ask:
    """What a job asks for; what is None is left to the site's defaults.

    Attributes:
        partition: of the cluster.
        gpus: for the job.
        time: limit as Slurm writes it, ``30`` minutes or ``01:30:00``.
        constraint: a feature that the node must have, such as ``gfx942``.
        account: what is charged.
    """

    partition: str | None = None
    gpus: int | None = None
    time: str | None = None
    constraint: str | None = None
    account: str | None = None

    def words(self) -> tuple[str, ...]:
        """Return the options of ``sbatch``."""
        named = {
            "partition": self.partition,
            "gpus": self.gpus,
            "time": self.time,
            "constraint": self.constraint,
            "account": self.account,
        }
        return tuple(f"--{name}={value}" for name, value in named.items() if value is not None)


class Slurm:
    """One cluster, as the commands on PATH reach it."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def submit(self, script: Path, name: str, ask: Ask) -> str:
        """Submit ``script`` as a job called ``name`` and return the job's id.

        The job is never requeued by Slurm: who submitted it decides.

        Raises:
            CouldNotError: ``SLURM_REFUSED`` with Slurm's words; ``TOOL_MISSING`` without Slurm.
        """
        done = self._call(
            "sbatch",
            "--parsable",
            "--no-requeue",
            "--nodes=1",
            f"--job-name={name}",
            f"--chdir={script.parent}",
            f"--output={script.parent / 'job.log'}",
            *ask.words(),
            str(script),
        )
        number = done.stdout.strip().partition(";")[0]
        if done.returncode != 0 or not number.isdecimal():
            raise CouldNotError(
                Problem(
                    code="SLURM_REFUSED",
                    what=f"sbatch did not take the job: {done.tail(3) or done.returncode}",
                    where=str(script),
                    fix="check --partition, --gpus, --time and --account against `sinfo`",
                )
            )
        return number

    def state(self, job: str) -> str | None:
        """Return the state of a job, such as ``RUNNING``; None where Slurm has forgotten it.

        Raises:
            CouldNotError: ``SLURM_UNREACHABLE``.
        """
        done = self._call("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}")
        if done.returncode != 0:
            if _FORGOTTEN in done.stderr:
                return None
            raise _unreachable(done)
        words = done.stdout.split()
        return words[0] if words else None

    def find(self, name: str) -> str | None:
        """Return the id of the job called ``name``, or None."""
        done = self._call("squeue", "--noheader", "--states=all", "--format=%i", f"--name={name}")
        if done.returncode != 0:
            raise _unreachable(done)
        words = done.stdout.split()
        return words[-1] if words else None

    def cancel(self, job: str) -> None:
        """Cancel a job; nothing happens where it has ended."""
        self._call("scancel", job)

    def cancel_named(self, name: str) -> bool:
        """Cancel the job called ``name``, whether or not its id came back; tell whether it went."""
        return self._call("scancel", f"--name={name}").returncode == 0

    def _call(self, *words: str) -> Completed:
        return self._runner.run(Command(words, timeout=_SECONDS))


def _unreachable(done: Completed) -> CouldNotError:
    return CouldNotError(
        Problem(
            code="SLURM_UNREACHABLE",
            what=f"{done.argv[0]} did not answer: {done.tail(3) or done.returncode}",
            fix="check that the controller is up (`scontrol ping`), then run the same command"
            " again: it takes its jobs up by their ids",
        )
    )
