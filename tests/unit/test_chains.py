from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from builder.engines.process import Command, ProcessRunner
from builder.errors import CouldNotError, Problem, RocmTorchError
from builder.pipeline.chains import Chain, Task, run_chains
from builder.pipeline.scheduler import BUILD, PUBLISH, Slots
from builder.pipeline.workspace import Tools
from builder.report.progress import Event

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT = 30.0


class Heard:
    """Remembers every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.closed = 0

    def say(self, cell: str, step: str, message: str) -> None:
        self.tell(Event(cell, step, "note", message))

    def tell(self, event: Event) -> None:
        self.events.append(event)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def tools(heard: Heard) -> Tools:
    return Tools(ProcessRunner(), lambda: datetime(2026, 12, 1, tzinfo=UTC), lambda: 0.0, heard)


def chain(cell: str, *acts: Callable[[], None]) -> Chain:
    return Chain(cell, tuple(Task(f"step{place}", BUILD, act) for place, act in enumerate(acts)))


def ignored(cell: str, step: str, error: RocmTorchError) -> None:
    raise AssertionError(f"{cell} {step} failed: {error}")


def test_steps_of_different_cells_run_at_once(tools: Tools) -> None:
    both = threading.Barrier(2, timeout=WAIT)

    def meet() -> None:
        both.wait()

    chains = [chain(cell, meet) for cell in ("a", "b")]
    run_chains(chains, Slots.of(2, 2), tools, failed=ignored, sweep=lambda: 0)


def test_with_one_slot_cells_go_one_after_the_other_each_to_its_end(tools: Tools) -> None:
    order: list[str] = []
    chains = [
        chain(cell, *(lambda cell=cell, step=step: order.append(cell + step) for step in "12"))
        for cell in "ab"
    ]
    run_chains(chains, Slots.of(1, 1), tools, failed=ignored, sweep=lambda: 0)
    assert order == ["a1", "a2", "b1", "b2"]


def test_a_failure_ends_its_own_cell_and_is_told_with_its_step(tools: Tools, heard: Heard) -> None:
    done: list[str] = []
    failures: list[tuple[str, str, str]] = []

    def fail() -> None:
        raise CouldNotError(Problem("NO", "no"))

    def failed(cell: str, step: str, error: RocmTorchError) -> None:
        failures.append((cell, step, error.problems[0].code))

    chains = [chain("a", fail, lambda: done.append("a")), chain("b", lambda: done.append("b"))]
    run_chains(chains, Slots.of(2, 2), tools, failed=failed, sweep=lambda: 0)
    assert failures == [("a", "step0", "NO")]
    assert done == ["b"]
    assert heard.closed == 1


def test_who_waits_is_told_with_what_for(tools: Tools, heard: Heard) -> None:
    chains = [chain("a", lambda: None), chain("b", lambda: None)]
    run_chains(chains, Slots.of(1, 1), tools, failed=ignored, sweep=lambda: 0)
    assert Event("b", "step0", "waiting", "cpu, disk") in heard.events


def test_a_stop_ends_children_sweeps_and_says_what_was_finished(tools: Tools, heard: Heard) -> None:
    started = threading.Event()
    ended: list[int] = []
    swept: list[int] = []

    def sleeping() -> None:
        command = Command(("sh", "-c", "echo up; sleep 600"), timeout=3600)
        ended.append(tools.runner.run(command, lambda *_: started.set()).returncode)
        tools.go_on()

    def stopping() -> None:
        assert started.wait(timeout=WAIT)
        raise KeyboardInterrupt

    chains = [
        Chain("a", (Task("push", PUBLISH, lambda: None), Task("stop", BUILD, stopping))),
        chain("b", sleeping),
    ]
    with pytest.raises(KeyboardInterrupt) as caught:
        run_chains(chains, Slots.of(2, 2), tools, failed=ignored, sweep=lambda: swept.append(1))
    assert ended == [-15]
    assert swept
    assert caught.value.__notes__ == ["1 of 3 steps are finished and recorded"]
    assert Event("b", "step0", "stopped", "stopped") in heard.events
    assert heard.closed == 1
    assert not [one for one in threading.enumerate() if one.name.startswith(("a ", "b "))]
    with pytest.raises(CouldNotError, match="stopped"):
        tools.runner.run(Command(("true",), timeout=5))
