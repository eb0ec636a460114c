"""Turns what the schema refuses into problems that name the place, what was read, what to write."""

from __future__ import annotations

import difflib
import re
from copy import deepcopy
from datetime import date
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from builder.errors import Problem
from builder.matrix import schema
from builder.matrix.versions import PYTHON_PATTERN, VERSION_PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic_core import ErrorDetails

    from builder.matrix.document import Document, Path

_PARTS: dict[str, type[BaseModel]] = {
    "policy": schema.PolicySource,
    "waiver": schema.WaiverSource,
    "prefer": schema.PreferSource,
    "exclude": schema.ExcludeSource,
    "include": schema.IncludeSource,
    "ci": schema.CiSource,
}
_PATTERNS = {
    VERSION_PATTERN: ("a version", 'Write two or three numbers in quotes, such as "6.2.4".'),
    PYTHON_PATTERN: ("a Python version", 'Write two numbers in quotes, such as "3.11" or "3.13t".'),
    schema.FLAVOUR_PATTERN: (
        "a flavour",
        "Write runtime, devel, opencl or slim-<gfx target>, such as slim-gfx942.",
    ),
    schema.GFX_PATTERN: ("a GPU target", "Write gfx and its number, such as gfx942."),
    schema.LANE_PATTERN: (
        "a lane name",
        "Start with a letter; use small letters, digits, dots and hyphens.",
    ),
    schema.RUNNER_PATTERN: (
        "a label of a machine",
        "Use letters, digits, dots, underscores and hyphens, such as self-hosted.",
    ),
    schema.SIZE_PATTERN: ("a size", 'Write a number and MiB, GiB, MB or GB, such as "4 GiB".'),
}
MAX_MENDED = 100
_VERSION_LIKE = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)?t?")
_HINTS = {
    "rocm": _PATTERNS[VERSION_PATTERN][1],
    "torch": _PATTERNS[VERSION_PATTERN][1],
    "python": _PATTERNS[PYTHON_PATTERN][1],
    "size_budget": _PATTERNS[schema.SIZE_PATTERN][1],
}
_REQUIRED = {"version": 1, "image": "to/repair", "registry": "docker.io"}


def near(word: str, known: Iterable[str], limit: int = 3) -> str:
    """Return ``did you mean``-advice, or a list of what there is where nothing is near."""
    names = sorted(set(known))
    close = difflib.get_close_matches(word[:80], names, n=limit, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"Known: {shown or 'none'}."


def shown(value: object) -> str:
    """Say what was read, in words, short whatever it is."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        try:
            return f"the number {value}"[:40]
        except ValueError:
            return "a number of thousands of digits"
    if isinstance(value, date):
        return f"the date {value.isoformat()}"
    if isinstance(value, str):
        return f'"{value if len(value) <= 60 else value[:57] + "..."}"'
    return "a mapping" if isinstance(value, dict) else "a list"


def parse_source(document: Document) -> tuple[schema.MatrixSource | None, list[Problem]]:
    """Check the shape of a document.

    Returns:
        The matrix, and the problems of its shape. With problems the matrix is what remains when
        the parts in question are mended or left out, for finding further problems and nothing
        else; ``None`` where too little remains.
    """
    data = deepcopy(document.data)
    problems: list[Problem] = []
    for step in range(4):
        try:
            return schema.MatrixSource.model_validate(data), problems
        except ValidationError as error:
            errors = error.errors(include_url=False)
        if step == 0:
            problems = [problem_of(item, document) for item in errors]
        if not isinstance(data, dict):
            break
        if step == 0:
            for item in errors:
                _mend(data, item, document)
        elif step == 1 and len(errors) <= MAX_MENDED:
            _leave_out(data, errors, document)
        else:
            _drop_lanes(data, errors)
    return None, problems


def problem_of(error: ErrorDetails, document: Document) -> Problem:
    """Return the problem for one error of the schema."""
    path: Path = tuple(part for part in error["loc"] if part != "[key]")
    code, what, fix = _told(error, path, document)
    return Problem(code, what, where=document.where(path), fix=fix)


def _told(error: ErrorDetails, path: Path, document: Document) -> tuple[str, str, str]:
    """Return code, sentence and fix."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    name = _name(path)
    if kind == "extra_forbidden":
        fix = near(str(path[-1]), _known_keys(path[:-1]))
        return "UNKNOWN_KEY", f'The key "{path[-1]}" is not known{_inside(path)}.', fix
    if kind == "missing":
        return "MISSING_KEY", f'The key "{path[-1]}" is missing{_inside(path)}.', f"Add `{name}:`."
    if kind == "string_type":
        return _not_text(path, value, document)
    if kind in {"tuple_type", "model_type", "dict_type", "model_attributes_type"}:
        return _wrong_type(kind, path, value, document)
    if kind == "string_pattern_mismatch":
        noun, fix = _PATTERNS[context["pattern"]]
        return "INVALID_VALUE", f"{shown(value)} in {name} is not {noun}.", fix
    if kind == "literal_error":
        expected = str(context["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
        return (
            "UNKNOWN_VALUE",
            f"{shown(value)} is not known in {name}.",
            near(str(value), expected),
        )
    if kind == "too_short":
        return "NOTHING_WRITTEN", f"{name} holds nothing.", "Write at least one entry."
    if kind == "bool_type":
        return "WRONG_TYPE", f"{name} is {shown(value)}.", "Write true or false, without quotes."
    fix = str(context.get("fix") or "Correct the value.")
    what = f"{name} is {shown(value)}: {error['msg']}."
    return "INVALID_VALUE", what if path else f"`registry` and `image`: {error['msg']}.", fix


def _not_text(path: Path, value: object, document: Document) -> tuple[str, str, str]:
    raw = document.text(path)
    name = _name(path)
    if raw is None or value is None:
        return "WRONG_TYPE", f"{name} is {shown(value)}, where text belongs.", "Write the value."
    code = "UNQUOTED_TEXT" if isinstance(value, bool) else "UNQUOTED_VERSION"
    fix = f'Write "{raw}".'
    if not _VERSION_LIKE.fullmatch(raw):
        fix = _HINTS.get(name, fix)
    return code, f"{raw[:60]} in {name} is read as {shown(value)}, not as text.", fix


def _wrong_type(kind: str, path: Path, value: object, document: Document) -> tuple[str, str, str]:
    name, raw = _name(path), document.text(path)
    if not path:
        what = f"The file holds {shown(value)}, where a mapping belongs."
        return "WRONG_TYPE", what, "Write `version: 1`, `image:` and `lanes:`."
    if kind != "tuple_type":
        what = f"{name} is {shown(value)}, where a mapping of keys belongs."
        return "WRONG_TYPE", what, "Write `key: value` lines under it."
    what = f"{name} is {shown(value)}, where a list belongs."
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    code = "UNQUOTED_VERSION" if raw and number else "WRONG_TYPE"
    return code, what, f'Write ["{raw}"].' if raw else "Write a list: [...]."


def _name(path: Path) -> str:
    """Return the last key of a path: what the reader sees at that place."""
    return next((part for part in reversed(path) if isinstance(part, str)), "the file")


def _inside(path: Path) -> str:
    if len(path) < 2:
        return ""
    if len(path) == 3 and path[0] == "lanes":
        return f' in the lane "{path[1]}"'
    return f" in {_name(path[:-1])}"


def _known_keys(path: Path) -> tuple[str, ...]:
    if not path:
        return tuple(schema.MatrixSource.model_fields)
    if len(path) == 2:
        return tuple(schema.LaneSource.model_fields)
    part = _PARTS.get(_name(path))
    return tuple(part.model_fields) if part else ()


def _mend(data: dict[str, Any], error: ErrorDetails, document: Document) -> None:
    """Mend the part with an error as it was surely meant: quote what YAML did not read as text."""
    path: Path = tuple(part for part in error["loc"] if part != "[key]")
    raw, holder = document.text(path), _at(data, path[:-1])
    if len(path) < 2 or path[0] != "lanes":
        if path and error["type"] == "extra_forbidden":
            data.pop(str(path[0]), None)
        else:
            data.update(_REQUIRED)
    elif (
        error["type"] == "extra_forbidden"
        and isinstance(holder, dict)
        and not {"exclude", "include"} & set(path)
    ):
        holder.pop(path[-1], None)
    elif error["type"] in {"string_type", "tuple_type"} and raw and _has(holder, path[-1]):
        holder[path[-1]] = raw if error["type"] == "string_type" else [raw]


def _leave_out(data: dict[str, Any], errors: list[ErrorDetails], document: Document) -> None:
    """Take out list items and keys with errors; later items first, so that indexes stay right."""
    paths = {_removable(item["loc"]) for item in errors}
    for path in sorted(paths, key=lambda path: [str(part).zfill(9) for part in path], reverse=True):
        holder = _at(data, path[:-1])
        if len(path) > 2 and _has(holder, path[-1]):
            del holder[path[-1]]
            if isinstance(holder, list):
                document.forget_item(path)


def _removable(loc: Path) -> Path:
    """Return the smallest part that can go without changing what the rest means."""
    if "exclude" in loc:
        return loc[: loc.index("exclude") + 2]
    return loc


def _drop_lanes(data: dict[str, Any], errors: list[ErrorDetails]) -> None:
    for item in errors:
        if len(item["loc"]) > 1 and isinstance(data.get("lanes"), dict):
            data["lanes"].pop(item["loc"][1], None)


def _has(holder: object, key: str | int) -> bool:
    if isinstance(holder, list):
        return isinstance(key, int) and key < len(holder)
    return isinstance(holder, dict) and key in holder


def _at(data: object, path: Path) -> Any:
    for part in path:
        if isinstance(data, dict) and isinstance(part, str):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data
