"""Reads the facts from YAML, one file a subject, and refuses what is not a fact with a source."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from builder.errors import Problem, RefusedError
from builder.facts.model import Contents, Distribution, DistroTorch, Fact, Facts

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from importlib.resources.abc import Traversable
    from pathlib import Path

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SUBJECTS: Mapping[str, type[Fact]] = MappingProxyType(
    {"distributions": Distribution, "distro_torch": DistroTorch, "contents": Contents}
)
_F = TypeVar("_F", bound=Fact)
_K = TypeVar("_K", bound="Hashable")


@cache
def load_facts(directory: Path | None = None) -> Facts:
    """Return the facts, read once a process.

    Args:
        directory: a folder of other facts, with files named as in ``builder/facts/data``; a
            subject without a file has no entries. The facts of this package by default.

    Raises:
        RefusedError: a file is not readable as facts; every problem of every file is named.
    """
    root: Traversable = files("builder.facts") / "data" if directory is None else directory
    problems = _strangers(root)
    distributions = _read(root, "distributions", Distribution, problems)
    torches = _read(root, "distro_torch", DistroTorch, problems)
    contents = _read(root, "contents", Contents, problems)
    by_name = _index(distributions, "distributions", lambda entry: entry.name, problems)
    _index(torches, "distro_torch", lambda entry: (entry.distro, entry.torch), problems)
    table = _index(contents, "contents", lambda entry: (entry.family, entry.flavour), problems)
    problems += [
        _problem("distro_torch", f'"{entry.distro}" is not a distribution of distributions.yaml')
        for entry in torches
        if entry.distro not in by_name
    ]
    if problems:
        raise RefusedError(problems)
    grouped: dict[str, tuple[DistroTorch, ...]] = {}
    for entry in torches:
        grouped[entry.distro] = (*grouped.get(entry.distro, ()), entry)
    return Facts(MappingProxyType(by_name), MappingProxyType(grouped), MappingProxyType(table))


def _strangers(root: Traversable) -> list[Problem]:
    """Name the files that no subject reads, because a misspelt name would silently drop facts."""
    return [
        _problem(name.removesuffix(".yaml"), f"no subject is called {name!r}")
        for name in sorted(item.name for item in root.iterdir())
        if name.endswith((".yaml", ".yml"))
        and (not name.endswith(".yaml") or name.removesuffix(".yaml") not in SUBJECTS)
    ]


def _read(
    root: Traversable, subject: str, kind: type[_F], problems: list[Problem]
) -> tuple[_F, ...]:
    path = root / f"{subject}.yaml"
    if not path.is_file():
        return ()
    try:
        data: Any = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506
        return TypeAdapter(tuple[kind, ...]).validate_python(data or ())  # type: ignore[valid-type]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problems.append(_problem(subject, f"not readable as YAML: {error}"))
    except ValidationError as error:
        for item in error.errors():
            place = ".".join(str(part) for part in item["loc"])
            read = repr(item["input"])[:80]
            problems.append(_problem(subject, f"entry {place}: {item['msg']}; read {read}"))
    return ()


def _index(
    entries: tuple[_F, ...],
    subject: str,
    key: Callable[[_F], _K],
    problems: list[Problem],
) -> dict[_K, _F]:
    table: dict[_K, _F] = {}
    for entry in entries:
        if key(entry) in table:
            problems.append(_problem(subject, f"two entries are about {key(entry)}"))
        table[key(entry)] = entry
    return table


def _problem(subject: str, what: str) -> Problem:
    return Problem("FACTS_INVALID", what, where=f"facts/{subject}.yaml")
