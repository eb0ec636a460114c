"""Runs the steps of many cells at once, as the board of the scheduler says.

The caller's thread alone holds the board; steps run in threads of their own and report back.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from builder.errors import RocmTorchError
from builder.pipeline.causes import explained
from builder.pipeline.scheduler import Board, Needs, Slots, Turn
from builder.report.progress import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from builder.pipeline.workspace import Tools

# Ending takes what the slowest child takes to die: buildx tells BuildKit that it goes.
_STOP_SECONDS = 30.0
_STOP_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Task:
    """One step of one cell: its name, what it occupies, and what does it and tells how it goes."""

    step: str
    needs: Needs
    act: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Chain:
    """The steps of one cell, one after the other."""

    cell: str
    tasks: tuple[Task, ...]


class Failed(Protocol):
    """Hears of a step that failed."""

    def __call__(self, cell: str, step: str, error: RocmTorchError) -> None:
        """Take the failure of one step; called in the thread of :func:`run_chains`."""
        ...


@dataclass(frozen=True, slots=True)
class _End:
    turn: Turn
    error: BaseException | None


def run_chains(
    chains: Sequence[Chain],
    slots: Slots,
    tools: Tools,
    *,
    failed: Failed,
    sweep: Callable[[], object],
) -> None:
    """Run every chain to its end; a failure ends its own chain alone.

    Whatever else happens (Ctrl-C, a fault of ours) stops all: children end, ``sweep`` is called
    until every step has ended, and the exception goes on with a note of what was finished.

    Args:
        chains: what to do, in the order in which cells come first.
        slots: what may run at the same time.
        tools: the runner whose children end, and who hears of progress.
        failed: hears of failures.
        sweep: removes what no process of ours holds: containers of running steps.
    """
    run = _Run(chains, slots, tools, failed)
    try:
        run.to_the_end()
    except BaseException as error:
        run.stop(sweep)
        error.add_note(run.told())
        raise
    finally:
        tools.progress.close()


class _Run:
    def __init__(self, chains: Sequence[Chain], slots: Slots, tools: Tools, failed: Failed) -> None:
        self._chains = chains
        self._tools = tools
        self._failed = failed
        self._board = Board.start([[task.needs for task in chain.tasks] for chain in chains], slots)
        self._ends: queue.SimpleQueue[_End] = queue.SimpleQueue()
        self._waits: dict[Turn, tuple[str, ...]] = {}
        self._done = 0
        for chain in chains:
            for task in chain.tasks:
                tools.progress.tell(Event(chain.cell, task.step, "planned"))

    def to_the_end(self) -> None:
        self._start_what_can()
        while self._board.running:
            self._take(self._ends.get())
            self._start_what_can()

    def stop(self, sweep: Callable[[], object]) -> None:
        """End everything that runs and wait for it; not for ever, as threads are daemons."""
        self._tools.stopping.set()
        for cell in sorted(self._board.running):
            chain = self._chains[cell]
            step = chain.tasks[self._board.position[cell]].step
            self._tools.progress.tell(Event(chain.cell, step, "stopped", "stopped"))
        self._tools.runner.end_all()
        left = round(_STOP_SECONDS / _STOP_POLL_SECONDS)
        while self._board.running and left:
            # Again and again: a container may have been on its way when the last sweep was made.
            try:
                sweep()
            except RocmTorchError as error:
                self._tools.progress.say("", "stopping", str(error))
            try:
                end = self._ends.get(timeout=_STOP_POLL_SECONDS)
            except queue.Empty:
                left -= 1
                continue
            self._done += end.error is None
            self._board = self._board.ended(end.turn, well=False)

    def told(self) -> str:
        """Return how much is finished, for the reader of the exception."""
        steps = sum(len(chain.tasks) for chain in self._chains)
        running = len(self._board.running)
        late = f"; {running} steps did not end in {_STOP_SECONDS:.0f} s" if running else ""
        return f"{self._done} of {steps} steps are finished and recorded{late}"

    def _start_what_can(self) -> None:
        while (turn := self._board.next()) is not None:
            self._board = self._board.started(turn)
            task = self._chains[turn.cell].tasks[turn.step]
            name = f"{self._chains[turn.cell].cell} {task.step}"
            threading.Thread(target=self._act, args=(turn, task), name=name, daemon=True).start()
        waits = dict(self._board.waiting())
        for turn, lacking in waits.items():
            if self._waits.get(turn) != lacking:
                chain = self._chains[turn.cell]
                step, text = chain.tasks[turn.step].step, ", ".join(lacking)
                self._tools.progress.tell(Event(chain.cell, step, "waiting", text))
        self._waits = waits

    def _act(self, turn: Turn, task: Task) -> None:
        error: BaseException | None = None
        try:
            task.act()
        except BaseException as raised:  # noqa: BLE001 - the caller's thread raises it
            error = raised
        self._ends.put(_End(turn, error))

    def _take(self, end: _End) -> None:
        chain = self._chains[end.turn.cell]
        step = chain.tasks[end.turn.step].step
        self._board = self._board.ended(end.turn, well=end.error is None)
        if end.error is None:
            self._done += 1
        elif isinstance(end.error, RocmTorchError):
            self._failed(chain.cell, step, explained(end.error))
        else:
            raise end.error
