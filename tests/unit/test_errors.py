from __future__ import annotations

import pytest

from builder.errors import (
    BadCallError,
    CouldNotError,
    IncompleteError,
    Problem,
    RefusedError,
    RocmTorchError,
)


def test_a_problem_is_told_with_place_reason_and_remedy() -> None:
    problem = Problem("CODE", "3.1 was read", where="matrix.yaml:7", why="a float", fix="quote it")
    assert str(problem).splitlines() == [
        "matrix.yaml:7: 3.1 was read [CODE]",
        "  why: a float",
        "  fix: quote it",
    ]


def test_a_problem_without_place_is_one_line() -> None:
    assert str(Problem("CODE", "no room")) == "no room [CODE]"


def test_the_json_of_a_problem_always_has_all_keys() -> None:
    assert Problem("C", "w").to_json() == {
        "code": "C",
        "what": "w",
        "where": None,
        "why": None,
        "fix": None,
    }


@pytest.mark.parametrize(
    ("kind", "code", "name"),
    [
        (CouldNotError, 1, "could-not"),
        (RefusedError, 2, "refused"),
        (IncompleteError, 3, "incomplete"),
        (BadCallError, 64, "bad-call"),
    ],
)
def test_each_kind_of_failure_has_its_exit_code(
    kind: type[RocmTorchError], code: int, name: str
) -> None:
    assert (kind.exit_code, kind.kind) == (code, name)


def test_one_problem_and_many_are_taken_and_all_are_in_the_message() -> None:
    first, second = Problem("A", "one"), Problem("B", "two")
    assert RefusedError(first).problems == (first,)
    many = RefusedError(problem for problem in (first, second))
    assert many.problems == (first, second)
    assert str(many) == "one [A]\ntwo [B]"
