from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from builder.report.progress import Event, PlainProgress, Silent, timed
from builder.report.progress.choose import Style, open_progress, style_for
from builder.report.progress.frame import frame
from builder.report.progress.lines import JsonProgress
from builder.report.progress.live import LiveProgress
from builder.report.progress.plain import PlainLines
from builder.report.progress.state import State, phase_of
from builder.report.progress.units import amount, short_seconds

if TYPE_CHECKING:
    from builder.report.progress.events import Kind
    from builder.report.progress.state import Phase

CELL = "rocm6.2.4-torch2.7.1-py311-ubuntu22.04"
OTHER = "cpu-torch2.6.0-py313-debian13"
STEPS = ("build", "test-smoke", "test-gpu", "sbom", "publish")


def planned(*cells: str) -> list[Event]:
    return [Event(cell, step, "planned") for cell in cells for step in STEPS]


def state_of(events: list[Event], *, every: float = 1.0) -> State:
    state = State()
    for number, event in enumerate(events):
        state = state.after(event, number * every)
    return state


def text_of(state: State, now: float, width: int = 79, height: int = 23) -> list[str]:
    lines = frame(state, now, width=width, height=height, begin=0.0)
    return ["".join(span.text for span in line) for line in lines]


def test_a_step_goes_from_planned_over_waiting_and_running_to_done() -> None:
    phases: list[Phase] = []
    kinds: tuple[Kind, ...] = ("planned", "waiting", "started", "doing", "done")
    state = State()
    for kind in kinds:
        state = state.after(Event(CELL, "build", kind, "x"), len(phases))
        phases.append(state.steps(CELL)["build"].phase)
    assert phases == ["planned", "waiting", "running", "running", "done"]
    assert state.steps(CELL)["build"].seconds == 2


def test_a_failed_step_stays_failed() -> None:
    state = state_of([Event(CELL, "build", "failed", "no"), Event(CELL, "build", "done")])
    assert phase_of(state.steps(CELL)) == "failed"


def test_a_step_that_only_some_cells_have_keeps_its_place() -> None:
    events = [Event(OTHER, step, "planned") for step in ("build", "test-smoke", "sbom")]
    assert state_of([*events, *planned(CELL)]).step_names() == STEPS


def test_a_whole_id_and_five_steps_fit_80_columns() -> None:
    events = [*planned(CELL, OTHER), Event(CELL, "build", "started", "building: never built")]
    events.append(
        Event(CELL, "build", "doing", "[2/5] RUN apt-get install", 12_100_000, 40_000_000)
    )
    events.append(Event(OTHER, "build", "waiting", "cpu, disk"))
    lines = text_of(state_of(events, every=0.0), 42.0)
    assert lines == [
        "cell                                     build   smoke     gpu    sbom publish",
        f"{CELL}   > 42s       .       .       .       .",
        "  build: 12.1 of 40.0 MB  [2/5] RUN apt-get install",
        f"{OTHER}             ~cpu       .       .       .       .",
        "1 waiting, 1 running, 42 s  ~: waits for a slot",
    ]


def test_where_not_all_cells_fit_those_that_failed_and_run_are_shown_and_the_rest_counted() -> None:
    cells = [f"cpu-torch1.{number}.0-py313-debian13" for number in range(24)]
    events = planned(*cells)
    events += [
        Event(cells[20], "build", "failed", "BUILD_FAILED"),
        Event(cells[9], "build", "started", "x"),
    ]
    lines = text_of(state_of(events), 100.0, height=8)
    assert len(lines) <= 8
    assert any(line.startswith(cells[20]) for line in lines)
    assert any(line.startswith(cells[9]) for line in lines)
    assert "22 planned, 1 running, 1 failed (20 not shown)" in lines[-1]


EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from([CELL, OTHER, f"{CELL}-slim-gfx942", "", *(f"c{n}" for n in range(20))]),
        st.sampled_from(STEPS),
        st.sampled_from(
            ["planned", "waiting", "started", "doing", "note", "done", "failed", "stopped"]
        ),
        st.text(max_size=200),
        st.none() | st.integers(0, 10**12),
        st.none() | st.integers(0, 10**12),
    ),
    max_size=60,
)


@given(EVENTS, st.integers(20, 200), st.integers(3, 60))
def test_a_table_is_never_wider_or_higher_than_the_terminal(
    events: list[Event], width: int, height: int
) -> None:
    lines = text_of(state_of(events), 1e5, width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)


@given(EVENTS)
def test_no_stream_of_events_breaks_a_display(events: list[Event]) -> None:
    plain, as_json = PlainLines(), JsonProgress(io.StringIO())
    for number, event in enumerate(events):
        plain.feed(event, float(number))
        as_json.tell(event)


def test_plain_lines_tell_a_wait_that_lasts_once_and_bytes_seldom() -> None:
    lines, told = PlainLines(), list[str]()
    sending = Event(OTHER, "publish", "doing", "pushing layers", 5_000_000, 10_000_000)
    events = [
        (0.0, Event(CELL, "build", "waiting", "cpu")),
        (0.1, Event(OTHER, "publish", "started", "to localhost:5000/x")),
        (0.2, sending),
        (0.3, sending),
        (4.0, sending),
        (6.0, sending),
    ]
    for now, event in events:
        told += lines.feed(event, now)
    assert [line.split(None, 2)[1:] for line in told] == [
        ["publish", "to localhost:5000/x"],
        ["publish", "pushing layers  5.0 of 10.0 MB  0 s"],
        ["build", "waits for cpu"],
        ["publish", "pushing layers  5.0 of 10.0 MB  6 s"],
    ]


def test_columns_of_plain_lines_stand_below_each_other_for_ids_of_any_length() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream, lambda: 0.0)
    for event in planned(CELL, OTHER):
        progress.tell(event)
    progress.say(CELL, "build", "one")
    progress.say(OTHER, "build", "two")
    first, second = stream.getvalue().splitlines()
    assert first.index("one") == second.index("two")


def test_json_lines_are_objects_with_a_schema_and_only_what_is_known() -> None:
    stream, times = io.StringIO(), iter([10.0, 10.5, 11.0])
    progress = JsonProgress(stream, lambda: next(times))
    progress.tell(Event(CELL, "publish", "doing", "pushing", 1, 2))
    progress.say("", "wait", "for another run")
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {
            "schema": "rocm-torch/progress/v1",
            "seconds": 0.5,
            "cell": CELL,
            "step": "publish",
            "event": "doing",
            "message": "pushing",
            "bytes": 1,
            "bytes_total": 2,
        },
        {
            "schema": "rocm-torch/progress/v1",
            "seconds": 1.0,
            "step": "wait",
            "event": "note",
            "message": "for another run",
        },
    ]


@pytest.mark.parametrize(
    ("terminal", "environ", "style"),
    [
        (True, {"TERM": "xterm-256color"}, Style.LIVE),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, Style.LIVE),
        (True, {"TERM": "dumb"}, Style.PLAIN),
        (True, {}, Style.PLAIN),
        (True, {"TERM": "xterm", "CI": "true"}, Style.PLAIN),
        (True, {"TERM": "xterm", "CI": "false"}, Style.LIVE),
        (False, {"TERM": "xterm"}, Style.PLAIN),
    ],
)
def test_a_table_is_for_a_person_at_a_terminal(
    terminal: bool, environ: dict[str, str], style: Style
) -> None:
    assert style_for(Style.AUTO, terminal=terminal, environ=environ) is style
    assert style_for(Style.JSON, terminal=terminal, environ=environ) is Style.JSON


def test_each_style_opens_its_display_and_quiet_wins() -> None:
    stream = io.StringIO()
    opened = [open_progress(style, stream, {}, quiet=False) for style in Style]
    kinds = [type(one) for one in opened]
    assert kinds == [PlainProgress, LiveProgress, PlainProgress, JsonProgress]
    assert isinstance(open_progress(Style.LIVE, stream, {}, quiet=True), Silent)


def live(environ: dict[str, str]) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, height=24, _environ=environ)
    progress = LiveProgress(stream, lambda: 3.0, console)
    progress.say("", "registry", "up at localhost:5000")
    for event in planned(OTHER):
        progress.tell(event)
    with timed(progress, OTHER, "build", lambda: 3.0, "building: never built"):
        progress.tell(Event(OTHER, "build", "doing", "[2/5] RUN [x] true"))
    progress.tell(Event(OTHER, "test-smoke", "failed", "the self-test said nothing"))
    progress.close()
    return stream.getvalue()


def test_the_table_stays_when_it_is_closed_and_says_what_failed() -> None:
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", live({"TERM": "xterm-256color"}))
    assert "registry   up at localhost:5000" in shown
    assert "test-smoke failed: the self-test said nothing" in shown
    assert re.search(rf"{OTHER} +0\.0s  FAILED", shown)
    assert shown.rstrip().endswith("1 failed, 0 s")


def test_no_color_takes_the_colours_and_leaves_the_table() -> None:
    assert "\x1b[32m" in live({"TERM": "xterm-256color"})
    without = live({"TERM": "xterm-256color", "NO_COLOR": "1"})
    assert "FAILED" in without
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", without)


def test_a_live_display_without_planned_cells_is_plain_lines() -> None:
    stream = io.StringIO()
    progress = LiveProgress(stream, lambda: 0.0)
    with timed(progress, OTHER, "lock", lambda: 0.0, "bootstrapping"):
        pass
    progress.close()
    assert [line.split(None, 2)[2] for line in stream.getvalue().splitlines()] == [
        "bootstrapping",
        "done in 0.0 s",
    ]


def test_amounts_and_times_stay_short() -> None:
    assert amount(None, 5) == ""
    assert amount(2, 300) == ""
    assert amount(12_100_000, None) == "12.1 MB"
    assert [short_seconds(one) for one in (0.42, 99.94, 132.0, 4500.0)] == [
        "0.4s",
        "99.9s",
        "132s",
        "75m",
    ]
