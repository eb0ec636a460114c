"""Field cases about the matrix: what may be written, in which order it counts, what cannot be."""

from __future__ import annotations

import pytest

from builder.errors import Problem, RefusedError
from builder.facts import load_facts
from builder.matrix.load import Matrix, load_matrix

FACTS = load_facts()
LANE = """\
version: 1
image: ourorg/rocm-torch
lanes:
  one:
    purpose: a field case
    base: wheel
    distro: ["ubuntu24.04"]
    rocm: ["7.2"]
    torch: ["2.13.0"]
    python: ["3.12"]
"""


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(RefusedError) as caught:
        load_matrix(text, "matrix.yaml", FACTS)
    return caught.value.problems


def load(text: str) -> Matrix:
    return load_matrix(text, "matrix.yaml", FACTS)


def test_g8_02_include_adds_and_exclude_wins() -> None:
    include = '    include: [{python: "3.13"}]\n'
    assert {cell.python for cell in load(LANE + include).cells} == {"3.12", "3.13"}
    excluded = include + '    exclude: [{python: "3.13", reason: too new}]\n'
    matrix = load(LANE + excluded)
    assert [cell.python for cell in matrix.cells] == ["3.12"]
    assert [(item.code, item.reason) for item in matrix.excluded] == [
        ("EXCLUDED_BY_MATRIX", "too new")
    ]


def test_g8_02_a_misspelt_key_is_named_with_what_was_meant() -> None:
    (found,) = problems(LANE + '    exclude: [{pyhton: "3.12", reason: x}]\n')
    assert found.code == "UNKNOWN_KEY"
    assert "pyhton" in found.what
    assert "python" in (found.fix or "")
    assert found.where == "matrix.yaml:11"


def test_g8_02_an_exclude_that_matches_nothing_is_an_error() -> None:
    (found,) = problems(LANE + '    exclude: [{python: "3.13", reason: x}]\n')
    assert found.code == "EXCLUDE_MATCHES_NOTHING"


def test_g8_02_an_exclude_that_would_match_only_as_another_type_is_an_error() -> None:
    found = problems(LANE + "    exclude: [{python: 3.12, reason: x}]\n")
    assert "UNQUOTED_VERSION" in {problem.code for problem in found}


def test_g8_02_an_include_that_adds_nothing_is_an_error() -> None:
    (found,) = problems(LANE + '    include: [{python: "3.12"}]\n')
    assert found.code == "INCLUDE_ADDS_NOTHING"


def test_g2_11_a_distribution_that_amd_has_no_compilers_for_is_dropped_before_the_build() -> None:
    text = LANE.replace("base: wheel", "base: rocm-dev").replace("24.04", "20.04")
    matrix = load(text.replace('"7.2"', '"7.2.1"') + "    flavour: [devel]\n")
    (item,) = matrix.excluded
    assert not matrix.cells
    assert "ubuntu20.04" in item.reason
    assert "7.2.1" in item.reason


@pytest.mark.parametrize(
    ("release", "stream"), [("7.2.4", "legacy"), ("7.14.0", "therock"), ("10.0.0", "therock")]
)
def test_g2_12_the_kind_of_a_release_is_a_fact_and_not_made_of_its_number(
    release: str, stream: str
) -> None:
    assert FACTS.rocm_releases[release].stream == stream


def test_g2_12_a_release_that_nobody_knows_is_an_error_and_no_guess() -> None:
    found = problems(LANE.replace('"7.2"', '"8.1"'))
    assert [problem.code for problem in found] == ["UNKNOWN_AXIS_VALUE"]
    assert '"8.1"' in found[0].what


def test_g8_02_a_misspelt_key_of_an_include_is_named_too() -> None:
    first, *_ = problems(LANE + '    include: [{pyhton: "3.13"}]\n')
    assert first.code == "UNKNOWN_KEY"
    assert "python" in (first.fix or "")
