"""Which packages bring what the contents table asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.matrix.cells import Interpreter, Repository
from builder.matrix.ids import DEFAULT_FLAVOUR
from builder.matrix.versions import series

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from builder.facts import ComponentPackages, Distribution, Facts, PackageRepository
    from builder.matrix.families.model import Combination

# Every image can check certificates; the rest follows from the contents table.
ALWAYS = ("ca-certificates",)
DISTRO = "distro"


def interpreter(combination: Combination, facts: Facts) -> Interpreter:
    """Return where Python comes from: the distribution where it has that version, else uv.

    Only the distribution's own ``python3`` counts: the others that an archive may hold are not
    what it supports (the python3.11 of Ubuntu 22.04 is a release candidate).
    """
    distribution = facts.distributions[combination.distro]
    if distribution.python == combination.python:
        return Interpreter("distro", f"python{combination.python}")
    return Interpreter("uv")


def packages(combination: Combination, facts: Facts, python: Interpreter) -> tuple[str, ...]:
    """Return the packages of the distribution that an image of wheels or of AMD's gets, sorted."""
    distribution = facts.distributions[combination.distro]
    found = {*ALWAYS, *component_packages(combination, facts)}
    if python.provider == "distro":
        found |= {"python3", "python3-dev" if _manager(distribution) == "apt" else "python3-devel"}
    return tuple(sorted(found))


def component_packages(
    combination: Combination, facts: Facts, *, without: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the packages that bring the contents, except for what is there already, sorted."""
    entries = _entries(combination, facts)
    found = {name for one in entries if one.component not in without for name in one.packages}
    return tuple(sorted(found))


def runtime(facts: Facts) -> tuple[str, ...]:
    """Return the components that the packages of each build of a distribution bring already."""
    contents = facts.contents.get((DISTRO, DEFAULT_FLAVOUR))
    return contents.components if contents else ()


def repositories(combination: Combination, facts: Facts) -> tuple[Repository, ...]:
    """Return the repository of AMD that the contents need, with what is installed from it."""
    wanted = {name for entry in _entries(combination, facts) for name in entry.repository_packages}
    found = repository(combination, facts)
    if not wanted or found is None or found.key_fingerprint is None or combination.rocm is None:
        return ()
    distribution = facts.distributions[combination.distro]
    fields = {
        "release": release(combination.rocm),
        "codename": distribution.codename or "",
        "distro": distribution.name.replace(".", ""),
        "version_id": distribution.version_id,
    }
    return (
        Repository(
            name="amd-rocm",
            uri=found.uri.format_map(fields),
            key_url=found.key_url,
            key_fingerprint=found.key_fingerprint,
            packages=tuple(sorted(wanted)),
            suites=tuple(suite.format_map(fields) for suite in found.suites),
            components=found.components,
            origin=found.origin,
        ),
    )


def needs_repository(combination: Combination, facts: Facts) -> bool:
    """Tell whether the contents come from AMD's repository and not from the distribution's."""
    return any(entry.repository_packages for entry in _entries(combination, facts))


def repository(combination: Combination, facts: Facts) -> PackageRepository | None:
    """Return AMD's repository for that release and distribution."""
    if combination.rocm is None:
        return None
    distribution = facts.distributions[combination.distro]
    for entry in facts.package_repositories:
        if (
            series(combination.rocm) in entry.series
            and combination.distro in entry.distros
            and entry.package_manager == _manager(distribution)
        ):
            return entry
    return None


# What comes with the interpreter and the wheels themselves.
_IN_WHEELS = frozenset({"python-headers", "torchaudio", "torchvision"})


def without_packages(combination: Combination, facts: Facts) -> tuple[str, ...]:
    """Return the components that no package is known for and nothing else brings."""
    contents = facts.contents[combination.family, combination.contents]
    found: set[str] = {entry.component for entry in _entries(combination, facts)}
    found |= set(runtime(facts)) if combination.family == DISTRO else _IN_WHEELS
    return tuple(name for name in contents.components if name not in found)


def release(rocm: str) -> str:
    """Return a release as AMD's repositories write it: ``7.2`` for 7.2.0, ``7.2.4``."""
    return rocm.removesuffix(".0")


def _manager(distribution: Distribution) -> str:
    return "apt" if distribution.package_manager == "apt" else "dnf"


def _entries(combination: Combination, facts: Facts) -> Iterator[ComponentPackages]:
    contents = facts.contents.get((combination.family, combination.contents))
    distribution = facts.distributions[combination.distro]
    for entry in facts.component_packages:
        if (
            contents is not None
            and entry.component in contents.components
            and entry.package_manager == _manager(distribution)
            and (not entry.distros or distribution.name in entry.distros)
            and (not entry.families or combination.family in entry.families)
        ):
            yield entry
