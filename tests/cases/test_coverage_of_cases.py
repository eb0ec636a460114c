"""Every field case of the groups that are whole has a test that carries its id."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__)
# The numbers that the collection has, by group; a number that is missing there was withdrawn.
CASES = {
    "g2": (*range(1, 6), *range(7, 23), 24),
    "g3": (*range(1, 9), 10),
    "g4": (*range(1, 6), *range(7, 13)),
    "g5": (*range(1, 8), *range(9, 14)),
}
_ID = re.compile(r"\bg[0-9]-[0-9]{2}\b")


def carried() -> set[str]:
    texts = (path.read_text() for path in HERE.parents[1].rglob("test_*.py") if path != HERE)
    return {found for text in texts for found in _ID.findall(text)}


@pytest.mark.parametrize("group", CASES)
def test_every_case_of_a_group_is_carried_by_a_test(group: str) -> None:
    wanted = {f"{group}-{number:02}" for number in CASES[group]}
    assert wanted - carried() == set()
