from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import BadCallError
from builder.matrix.cells import Base, Cell, Expected, Ranking
from builder.matrix.ids import cell_id
from builder.matrix.select import select


def cell(lane: str, rocm: str | None, python: str, distro: str) -> Cell:
    return Cell(
        id=cell_id(rocm, "2.6.0", python, distro, "runtime"),
        lane=lane,
        distro=distro,
        rocm=rocm,
        torch="2.6.0",
        python=python,
        flavour="runtime",
        base=Base("distro" if rocm is None else "wheel", "base"),
        expected=Expected("2.6.0", "cpu"),
        gfx=() if rocm is None else ("gfx1100", "gfx942"),
        ranking=Ranking(default=lane in {"current", "cpu"}),
    )


CELLS = (
    cell("current", "10.1.0", "3.13t", "ubuntu24.04"),
    cell("current", "10.1.0", "3.12", "ubuntu24.04"),
    cell("legacy", "7.14.1", "3.12", "ubuntu22.04"),
    cell("legacy", "7.2.4", "3.10", "ubuntu22.04"),
    cell("cpu", None, "3.13", "debian13"),
    cell("cpu", None, "3.11", "debian12"),
)
TAGS = {"10.1": CELLS[1], "7.2-py310": CELLS[3], "cpu": CELLS[4]}


def chosen(*selectors: str) -> list[int]:
    return [CELLS.index(item) for item in select(CELLS, selectors, TAGS)]


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ([], [0, 1, 2, 3, 4, 5]),
        ([CELLS[2].id], [2]),
        (["10.1"], [1]),
        (["7.2-py310"], [3]),
        (["legacy"], [2, 3]),
        (["cpu"], [4]),
        (["lane=cpu"], [4, 5]),
        (["rocm*"], [0, 1, 2, 3]),
        (["*ubuntu22.04"], [2, 3]),
        (["rocm=7.2"], [3]),
        (["rocm==7.2.4"], [3]),
        (["rocm>7.2"], [0, 1, 2]),
        (["rocm<=7.2"], [3]),
        (["rocm>=7.2"], [0, 1, 2, 3]),
        (["rocm<10"], [2, 3]),
        (["rocm!=7.2"], [0, 1, 2, 4, 5]),
        (["rocm=none"], [4, 5]),
        (["rocm!=none,rocm<10.0"], [2, 3]),
        (["python=3.13"], [4]),
        (["python=3.13t"], [0]),
        (["python>3.12"], [0, 4]),
        (["python<3.11"], [3]),
        (["python>=3"], [0, 1, 2, 3, 4, 5]),
        (["distro=ubuntu*"], [0, 1, 2, 3]),
        (["distro!=ubuntu*"], [4, 5]),
        (["gfx=gfx942, rocm=10.1"], [0, 1]),
        (["base=distro"], [4, 5]),
        (["rocm>=7.2,python=3.12", "cpu"], [1, 2, 4]),
        (["legacy", "legacy"], [2, 3]),
    ],
)
def test_a_selector_names_cells(selectors: list[str], expected: list[int]) -> None:
    assert chosen(*selectors) == expected


@pytest.mark.parametrize(
    ("selector", "code", "near"),
    [
        ("pyhton=3.12", "BAD_SELECTOR", "python"),
        ("python=three", "BAD_SELECTOR", "python>="),
        ("rocm>=7.x", "BAD_SELECTOR", "rocm>="),
        ("python=3.13tt", "BAD_SELECTOR", "3.13t"),
        ("distro>=debian12", "BAD_SELECTOR", "distro=debian12"),
        ("rocm>=", "BAD_SELECTOR", "VALUE"),
        ("rocm>none", "BAD_SELECTOR", "rocm>="),
        ("", "BAD_SELECTOR", "axis=value"),
        (" , ", "BAD_SELECTOR", "axis=value"),
        ("legacy,,cpu", "BAD_SELECTOR", "axis=value"),
        ("legcy", "EMPTY_SELECTION", "legacy"),
        ("rocm=6.2", "EMPTY_SELECTION", "rocm"),
        ("cpu-torch2.6.0-py312-debian13", "EMPTY_SELECTION", "cpu-torch2.6.0-py313-debian13"),
        ("nothing*", "EMPTY_SELECTION", ""),
        ("legacy,cpu", "EMPTY_SELECTION", ""),
    ],
)
def test_a_bad_selector_is_a_bad_call_that_repeats_it(selector: str, code: str, near: str) -> None:
    with pytest.raises(BadCallError) as caught:
        chosen(selector, "legacy")
    (problem,) = caught.value.problems
    assert caught.value.exit_code == 64
    assert problem.code == code
    assert f'"{selector}"' in problem.what
    assert near in str(problem.fix)


def test_every_bad_selector_is_named() -> None:
    with pytest.raises(BadCallError) as caught:
        chosen("legcy", "legacy", "python=x")
    assert [item.code for item in caught.value.problems] == ["EMPTY_SELECTION", "BAD_SELECTOR"]


def test_nothing_to_select_from_is_a_bad_call() -> None:
    with pytest.raises(BadCallError, match="EMPTY_SELECTION"):
        select((), (), {})


@given(st.text(max_size=40) | st.from_regex(r"\A(rocm|python|distro)[<>=!]{1,2}.{0,9}\Z"))
def test_any_text_selects_or_is_a_bad_call(selector: str) -> None:
    try:
        chosen = select(CELLS, [selector], TAGS)
    except BadCallError:
        return
    assert chosen
