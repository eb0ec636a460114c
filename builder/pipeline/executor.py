"""Where a test runs: here in a container, or on a node of a cluster. The step does not care."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from builder.engines.docker_engine import RunResult
    from builder.pipeline.session import Session
    from builder.report.records import BuildRecord


def step_name(level: str, gfx: str | None = None) -> str:
    """Return the name of the step, record and report of a test."""
    return f"test-{level}-{gfx}" if gfx else f"test-{level}"


@dataclass(frozen=True, slots=True)
class TestTask:
    """One level of the self-test for one image.

    ``gfx`` names the GPU family of the node that is wanted; None where any will do.
    """

    __test__ = False  # not a class of tests, whatever pytest thinks of the name

    built: BuildRecord
    level: str
    gfx: str | None = None

    @property
    def step(self) -> str:
        """Return the name of its record."""
        return step_name(self.level, self.gfx)


@dataclass(frozen=True, slots=True)
class Ran:
    """How a test ended, and what the report says of the host."""

    result: RunResult
    host: dict[str, Any]


class Executor(Protocol):
    """Runs tests."""

    def run(self, session: Session, task: TestTask) -> Ran:
        """Run ``task`` to its end, or take up the run of it that an earlier call began.

        Raises:
            CouldNotError: it did not run to an end.
        """
        ...

    def stop(self, session: Session, /) -> object:
        """End what runs; called again until every test has ended, also from another thread."""
        ...
