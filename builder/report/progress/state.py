"""One state for all displays: what every step of every cell is at. Events in, state out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from builder.report.progress.events import Event

Phase = Literal["planned", "waiting", "running", "done", "failed", "stopped"]
_PHASES: dict[str, Phase] = {
    "planned": "planned",
    "waiting": "waiting",
    "started": "running",
    "doing": "running",
    "done": "done",
    "failed": "failed",
    "stopped": "stopped",
}
_OVER = ("done", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class StepState:
    """What one step is at.

    Attributes:
        phase: where it stands.
        since: when the phase began, in seconds of the run's clock.
        seconds: how long it ran, once it is over; None where it did not run.
        message: what was said last of it.
        doing: what it does at this moment; empty when it is over.
        current: bytes moved.
        total: bytes to move.
    """

    phase: Phase
    since: float
    seconds: float | None = None
    message: str = ""
    doing: str = ""
    current: int | None = None
    total: int | None = None

    def after(self, event: Event, now: float) -> StepState:
        """Return the state after ``event``; a step that failed stays failed."""
        if event.kind == "note":
            return replace(self, message=event.message)
        phase = _PHASES[event.kind]
        if phase == "running":
            return self._running(event, now)
        if phase in _OVER:
            if self.phase in _OVER:
                return self
            ran = now - self.since if self.phase == "running" else None
            message = event.message or self.message
            return StepState(phase, now, ran, message, "", self.current, self.total)
        return replace(self, phase=phase, since=now, message=event.message)

    def _running(self, event: Event, now: float) -> StepState:
        begins = self.phase != "running"
        return StepState(
            phase="running",
            since=now if begins else self.since,
            message=event.message if event.kind == "started" else self.message,
            doing=event.message if event.kind == "doing" else "",
            current=event.current,
            total=event.total,
        )


@dataclass(frozen=True, slots=True)
class State:
    """All cells in the order in which they were told, and the steps of each in theirs."""

    cells: tuple[tuple[str, tuple[tuple[str, StepState], ...]], ...] = ()

    def after(self, event: Event, now: float) -> State:
        """Return the state after ``event``, which was told at ``now``."""
        if not event.cell:
            return self
        cells = dict(self.cells)
        steps = dict(cells.get(event.cell, ()))
        before = steps.get(event.step, StepState("planned", now))
        steps[event.step] = before.after(event, now)
        cells[event.cell] = tuple(steps.items())
        return State(tuple(cells.items()))

    def steps(self, cell: str) -> dict[str, StepState]:
        """Return the steps of ``cell``; empty where nothing was told of it."""
        return dict(dict(self.cells).get(cell, ()))

    def step_names(self) -> tuple[str, ...]:
        """Return the names of all steps; one that only some cells have keeps its place."""
        names: list[str] = []
        for _, steps in self.cells:
            place = 0
            for name, _ in steps:
                if name not in names:
                    names.insert(place, name)
                place = names.index(name) + 1
        return tuple(names)


def phase_of(steps: dict[str, StepState]) -> Phase:
    """Return where a cell as a whole stands: its worst step first, then its most active."""
    phases = {step.phase for step in steps.values()}
    order: tuple[Phase, ...] = ("failed", "stopped", "running", "waiting", "planned")
    for phase in order:
        if phase in phases:
            return phase
    return "done"
