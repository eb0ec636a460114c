from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.engines.buildx_progress import ProgressLog

CASES = Path(__file__).parents[1] / "cases" / "buildx"


def fed(text: str) -> list[str]:
    log = ProgressLog()
    lines = [line for raw in text.splitlines() for line in log.feed(raw)]
    return lines + log.rest()


def compact(text: str) -> str:
    """Return a recorded stream as newer buildx prints it: one object a line."""
    decoder, rest, lines = json.JSONDecoder(), text, []
    while rest.startswith("{"):
        value, end = decoder.raw_decode(rest)
        lines.append(json.dumps(value))
        rest = rest[end:].lstrip("\n")
    return "\n".join([*lines, rest])


def entry(data: bytes, vertex: str = "sha256:a") -> str:
    log = {"vertex": vertex, "data": base64.b64encode(data).decode()}
    return json.dumps({"logs": [log]})


def vertex(**changes: Any) -> str:
    start = {"digest": "sha256:a", "name": "RUN true", "started": "2026-12-01T00:00:00Z"}
    return json.dumps({"vertexes": [start | changes]})


@pytest.mark.parametrize("name", ["built", "failed", "busy"])
def test_pretty_printed_and_one_line_objects_give_one_log(name: str) -> None:
    text = (CASES / f"{name}.rawjson").read_text()
    assert fed(compact(text)) == fed(text)
    assert not any(line.startswith(("{", " ")) for line in fed(text) if "|" not in line)


def test_a_failed_build_ends_with_its_output_and_the_error() -> None:
    lines = fed((CASES / "failed.rawjson").read_text())
    step = next(line for line in lines if "[2/2] RUN" in line)
    number = step.split()[0]
    at = lines.index(f"{number} line 1")
    assert lines[at : at + 40] == [f"{number} line {count}" for count in range(1, 41)]
    assert lines[at + 40].startswith(f"{number} ERROR: process")
    assert lines[-1].startswith("ERROR: failed to solve")
    assert "   2 | >>> RUN" in "\n".join(lines)


def test_each_step_is_named_once_and_ended_once() -> None:
    lines = fed((CASES / "built.rawjson").read_text())
    numbers = {line.split()[0] for line in lines if line.startswith("#")}
    assert numbers == {f"#{count}" for count in range(1, len(numbers) + 1)}
    for number in numbers:
        ends = [line for line in lines if line in (f"{number} DONE", f"{number} CACHED")]
        assert len(ends) == 1


def test_a_cached_step_says_so() -> None:
    assert fed(vertex(cached=True, completed="2026-12-01T00:00:01Z")) == [
        "#1 RUN true",
        "#1 CACHED",
    ]


def test_a_line_that_comes_in_parts_is_one_line() -> None:
    assert fed("\n".join([vertex(), entry(b"abc"), entry(b"def\ngh")])) == [
        "#1 RUN true",
        "#1 abcdef",
        "#1 gh",
    ]


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1), st.data())
def test_a_character_cut_in_two_is_whole_again(text: str, data: st.DataObject) -> None:
    raw = text.encode() + b"\n"
    cut = data.draw(st.integers(0, len(raw)))
    assert fed("\n".join([entry(raw[:cut]), entry(raw[cut:])])) == [f"#0 {text}"]


def test_text_that_is_no_json_is_kept() -> None:
    assert fed("ERROR: no builder\n\n") == ["ERROR: no builder"]
    assert fed('{"vertexes": [') == ['{"vertexes": [']


def test_broken_base64_is_left_out() -> None:
    assert fed(json.dumps({"logs": [{"vertex": "sha256:a", "data": "a"}]})) == []
