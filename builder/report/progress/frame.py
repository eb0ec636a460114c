"""The live table as text: state in, styled lines out, never wider or higher than the terminal."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.report.progress.state import Phase, State, StepState, phase_of
from builder.report.progress.units import amount, short_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

_STEP_WIDTH = 8
_LEAST_CELL = 12
_STYLES: dict[Phase, str] = {
    "planned": "dim",
    "waiting": "yellow",
    "running": "cyan",
    "done": "green",
    "failed": "bold red",
    "stopped": "yellow",
}
# Who is shown where not all fit.
_FIRST: tuple[Phase, ...] = ("failed", "running", "stopped", "waiting", "planned", "done")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line and its style, by rich's names; empty for none."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


def frame(state: State, now: float, *, width: int, height: int, begin: float) -> tuple[Line, ...]:
    """Return the table at ``now`` in at most ``height`` lines of at most ``width`` columns.

    A cell is one line, and one more that says what it does while it runs or why it failed. Where
    not all cells fit, those that failed and those that run are shown and the rest is counted.
    """
    names = state.step_names()
    room = max(_LEAST_CELL, width - _STEP_WIDTH * len(names))
    longest = max([len("cell"), *(len(cell) for cell, _ in state.cells)])
    cell_width = min(room, longest)
    head = Span(
        f"{'cell':<{cell_width}}" + "".join(f"{_head(name):>{_STEP_WIDTH}}" for name in names)
    )
    blocks = [
        (phase_of(dict(steps)), _block(cell, dict(steps), names, cell_width, now))
        for cell, steps in state.cells
    ]
    shown, hidden = _fitting(blocks, max(1, height - 2))
    lines: list[Line] = [(Span(head.text, "bold"),), *shown]
    lines.append(_foot(blocks, hidden, now - begin))
    return tuple(_cut(line, width) for line in lines)


def _head(step: str) -> str:
    """Return a step's name in the columns that it has: ``smoke`` for ``test-smoke``."""
    return step.removeprefix("test-")[: _STEP_WIDTH - 1]


def _block(
    cell: str, steps: dict[str, StepState], names: Sequence[str], width: int, now: float
) -> tuple[Line, ...]:
    line: list[Span] = [Span(f"{_shorter(cell, width):<{width}}")]
    for name in names:
        step = steps.get(name)
        if step is None:
            line.append(Span(" " * _STEP_WIDTH))
        else:
            line.append(Span(f"{_mark(step, now):>{_STEP_WIDTH}}", _STYLES[step.phase]))
    details = [(_detail(name, step)) for name, step in steps.items()]
    return (tuple(line), *((Span(f"  {text}", "dim"),) for text in details if text))


def _mark(step: StepState, now: float) -> str:
    if step.phase == "running":
        return f"> {now - step.since:.0f}s"
    if step.phase == "waiting":
        return f"~{step.message.partition(',')[0].replace('network', 'net')[: _STEP_WIDTH - 2]}"
    if step.phase == "failed":
        return "FAILED"
    if step.phase == "done":
        return short_seconds(step.seconds) if step.seconds is not None else "="
    return "stopped" if step.phase == "stopped" else "."


def _detail(name: str, step: StepState) -> str:
    if step.phase == "failed":
        return f"{name}: {step.message.splitlines()[0] if step.message else 'failed'}"
    if step.phase != "running":
        return ""
    moved = amount(step.current, step.total)
    # The amount first: it is short, and what is done may be a whole command.
    return f"{name}: " + "  ".join(filter(None, (moved, step.doing or step.message)))


def _fitting(
    blocks: Sequence[tuple[Phase, tuple[Line, ...]]], height: int
) -> tuple[list[Line], int]:
    """Return the lines of the blocks that fit, in their order, and how many do not."""
    taken: set[int] = set()
    left = height
    for place in sorted(range(len(blocks)), key=lambda place: _FIRST.index(blocks[place][0])):
        if len(blocks[place][1]) > left:
            break
        taken.add(place)
        left -= len(blocks[place][1])
    lines = [line for place in sorted(taken) for line in blocks[place][1]]
    return lines, len(blocks) - len(taken)


def _foot(blocks: Sequence[tuple[Phase, tuple[Line, ...]]], hidden: int, seconds: float) -> Line:
    counts = Counter(phase for phase, _ in blocks)
    told = [f"{counts[phase]} {phase}" for phase in reversed(_FIRST) if counts[phase]]
    rest = f" ({hidden} not shown)" if hidden else ""
    waits = "  ~: waits for a slot" if counts["waiting"] else ""
    return (Span(f"{', '.join(told)}{rest}, {seconds:.0f} s{waits}", "dim"),)


def _shorter(text: str, width: int) -> str:
    """Cut in the middle: ids begin alike, and end in what tells them apart."""
    if len(text) <= width:
        return text
    front = (width - 1) // 2
    return f"{text[:front]}…{text[len(text) - (width - 1 - front) :]}"


def _cut(line: Line, width: int) -> Line:
    left, spans = width, list[Span]()
    for span in line:
        text = " ".join(span.text.splitlines()) if "\n" in span.text else span.text
        text = text if len(text) <= left else f"{text[: max(0, left - 1)]}…"[:left]
        spans.append(Span(text, span.style))
        left -= len(text)
    return tuple(spans)
