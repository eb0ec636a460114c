"""Which Python distributions are installed: names, versions, what each needs and owns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib import metadata
from typing import Mapping, Sequence

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXACT = re.compile(r"^\s*([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?\s*===?\s*([^\s;,)]+)")


@dataclass(frozen=True)
class Installed:
    """One distribution.

    Attributes:
        name: normalised.
        version: as its metadata says.
        requires: normalised names of what it needs; what only an extra needs does not count.
        pins: exact versions by name, of what it needs in one version.
        modules: top-level modules that it owns, of those that were asked about.
        extras: names of its extras.
    """

    name: str
    version: str
    requires: frozenset[str] = frozenset()
    pins: Mapping[str, str] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()
    extras: frozenset[str] = frozenset()


def normalised(name: str) -> str:
    """Return a name as packages are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(lines: Sequence[str]) -> dict[str, str | None]:
    """Return what ``Requires-Dist`` lines need: the exact version by name, where there is one."""
    found: dict[str, str | None] = {}
    for line in lines:
        name = _NAME.match(line.strip())
        if name is None or "extra ==" in line.replace("extra==", "extra =="):
            continue
        exact = _EXACT.match(line)
        found[normalised(name.group())] = exact.group(2) if exact else None
    return found


def read_installed(modules: Sequence[str]) -> list[Installed]:
    """Read what the running Python has; of two copies the one that is imported.

    Args:
        modules: top-level modules whose owners are looked for.
    """
    found: dict[str, Installed] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if not name or normalised(name) in found:
            continue
        wanted = needed(distribution.requires or ())
        record = distribution.read_text("RECORD") or ""
        found[normalised(name)] = Installed(
            name=normalised(name),
            version=distribution.version,
            requires=frozenset(wanted),
            pins={other: version for other, version in wanted.items() if version is not None},
            modules=frozenset(
                module
                for module in modules
                if re.search(rf"^{re.escape(module)}/__init__\.py,", record, re.MULTILINE)
            ),
            extras=frozenset(distribution.metadata.get_all("Provides-Extra") or ()),
        )
    return [found[name] for name in sorted(found)]


def chain_to(name: str, installed: Sequence[Installed]) -> list[Installed]:
    """Return the shortest chain of needs that ends at ``name``, from what nobody else needs."""
    by_name = {one.name: one for one in installed}
    if name not in by_name:
        return []
    chains = [[by_name[name]]]
    seen = {name}
    while True:
        longer = []
        for chain in chains:
            above = [one for one in installed if chain[0].name in one.requires]
            if not above:
                return chain
            longer += [[one, *chain] for one in above if one.name not in seen]
            seen.update(one.name for one in above)
        if not longer:
            return chains[0]  # a circle of needs has no first one
        chains = longer
