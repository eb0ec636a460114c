"""Selectors, shared by all commands: which cells a command is about.

Several selectors are united; terms joined by commas inside one selector all have to hold::

    rocm>=7.2,python=3.12 cpu-*      the 7.2 and later cells with Python 3.12, and all CPU cells

A term is, in this order: ``axis OP value``, a cell id, a tag, a lane, a glob over ids. Where a tag
and a lane have one name the tag is meant; ``lane=NAME`` says the lane. A version is compared
with as many components as are written: ``rocm=7.2`` and ``rocm<=7.2`` hold for 7.2.4.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from builder.errors import BadCallError, Problem
from builder.matrix.problems import near
from builder.matrix.versions import python_key, version_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from builder.matrix.cells import Cell

Predicate = Callable[["Cell"], bool]
Compare = Callable[[Any, Any], bool]
_TERM = re.compile(r"\s*([A-Za-z_-]+)\s*(==|!=|>=|<=|=|>|<)\s*(.*?)\s*")
_NUMBERS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,2}")
_COMPARE: dict[str, Compare] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_NAMES: dict[str, Callable[[Cell], tuple[str, ...]]] = {
    "distro": lambda cell: (cell.distro,),
    "flavour": lambda cell: (cell.flavour,),
    "lane": lambda cell: (cell.lane,),
    "base": lambda cell: (cell.base.family,),
    "gfx": lambda cell: cell.gfx,
}
_VERSIONS = ("rocm", "torch", "python")
_KEYS = (*_VERSIONS, *_NAMES)
_NONE = "none"


def select(
    cells: Sequence[Cell], selectors: Sequence[str], tags: Mapping[str, Cell]
) -> tuple[Cell, ...]:
    """Return the cells that the selectors name, in the order of ``cells``.

    Args:
        cells: what there is.
        selectors: as given on the command line; none at all means every cell.
        tags: the owner of each moving tag.

    Raises:
        BadCallError: a selector is malformed or matches nothing; every such selector is named.
    """
    if not selectors:
        if cells:
            return tuple(cells)
        raise BadCallError(Problem("EMPTY_SELECTION", "The matrix has no cells to select from."))
    chosen: set[str] = set()
    problems: list[Problem] = []
    for selector in selectors:
        try:
            matching = _matching(cells, selector, tags)
        except BadCallError as error:
            problems += error.problems
            continue
        chosen.update(cell.id for cell in matching)
        if not matching:
            problems.append(_nothing(selector, cells))
    if problems:
        raise BadCallError(problems)
    return tuple(cell for cell in cells if cell.id in chosen)


def _matching(cells: Sequence[Cell], selector: str, tags: Mapping[str, Cell]) -> list[Cell]:
    terms = [_predicate(term, selector, cells, tags) for term in selector.split(",")]
    return [cell for cell in cells if all(term(cell) for term in terms)]


def _predicate(
    text: str, selector: str, cells: Sequence[Cell], tags: Mapping[str, Cell]
) -> Predicate:
    term = text.strip()
    if not term:
        raise _malformed(selector, "It has an empty part.", "Write a cell id, a tag or axis=value.")
    match = _TERM.fullmatch(term)
    if match:
        return _comparison(match[1], match[2], match[3], selector)
    if any(cell.id == term for cell in cells):
        return lambda cell: cell.id == term
    if term in tags:
        owner = tags[term].id
        return lambda cell: cell.id == owner
    if any(cell.lane == term for cell in cells):
        return lambda cell: cell.lane == term
    if any(sign in term for sign in "*?["):
        return lambda cell: fnmatchcase(cell.id, term)
    known = [name for cell in cells for name in (cell.id, cell.lane)]
    raise BadCallError(
        Problem(
            "EMPTY_SELECTION",
            f'The selector "{selector}" matches nothing: "{term}" is no cell, tag or lane.',
            fix=near(term, [*known, *tags]),
        )
    )


def _comparison(key: str, sign: str, value: str, selector: str) -> Predicate:
    if key not in _KEYS:
        raise _malformed(selector, f'"{key}" is not an axis.', near(key, _KEYS))
    if not value:
        raise _malformed(selector, f'"{key}{sign}" has no value.', f"Write `{key}{sign}VALUE`.")
    compare = _COMPARE[sign]
    if key in _NAMES:
        if compare not in (operator.eq, operator.ne):
            raise _malformed(selector, f"{key} has no order.", f"Write `{key}={value}`.")
        names, wanted = _NAMES[key], compare is operator.eq
        return lambda cell: any(fnmatchcase(name, value) for name in names(cell)) is wanted
    if key == "rocm" and value == _NONE and compare in (operator.eq, operator.ne):
        return lambda cell: compare(cell.rocm, None)
    if key == "python" and value.removesuffix("t").count("."):
        return _python(compare, value, selector)
    return _version(key, compare, value, selector)


def _python(compare: Compare, value: str, selector: str) -> Predicate:
    try:
        wanted = python_key(value)
    except ValueError:
        fix = "Write `python=3.11` or `python=3.13t`."
        raise _malformed(selector, f'"{value}" is not a Python version.', fix) from None
    return lambda cell: compare(python_key(cell.python), wanted)


def _version(key: str, compare: Compare, value: str, selector: str) -> Predicate:
    if not _NUMBERS.fullmatch(value):
        fix = f"Write numbers and dots, such as `{key}>=2.6`."
        raise _malformed(selector, f'"{value}" is not a version.', fix)
    wanted = tuple(int(part) for part in value.split("."))

    def holds(cell: Cell) -> bool:
        text: str | None = getattr(cell, key)
        if text is None:
            return compare is operator.ne
        numbers = python_key(text) if key == "python" else version_key(text)
        return compare(numbers[: len(wanted)], wanted)

    return holds


def _malformed(selector: str, what: str, fix: str) -> BadCallError:
    return BadCallError(
        Problem("BAD_SELECTOR", f'The selector "{selector}" is malformed: {what}', fix=fix)
    )


def _nothing(selector: str, cells: Sequence[Cell]) -> Problem:
    return Problem(
        "EMPTY_SELECTION",
        f'The selector "{selector}" matches none of the {len(cells)} cells.',
        fix=near(selector, [cell.id for cell in cells]),
    )
