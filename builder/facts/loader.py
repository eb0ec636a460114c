"""Reads the facts from YAML, one file a subject, and refuses what is not a fact with a source."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from builder.errors import Problem, RefusedError
from builder.facts.distributions import (
    ComponentPackages,
    Contents,
    Distribution,
    DistroTorch,
    Lifecycle,
)
from builder.facts.fact import Fact
from builder.facts.model import Facts
from builder.facts.registries import RegistryLimit
from builder.facts.rocm import (
    DevImage,
    DriverWindow,
    GfxProducts,
    PackageRepository,
    Peak,
    RocmRelease,
    RocmSupport,
    UpstreamImage,
)
from builder.facts.wheels import AmdWheel, LibcFloor, TorchWheel, WheelIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from importlib.resources.abc import Traversable
    from pathlib import Path

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SUBJECTS: Mapping[str, type[Fact]] = MappingProxyType(
    {
        "distributions": Distribution,
        "distro_torch": DistroTorch,
        "contents": Contents,
        "component_packages": ComponentPackages,
        "rocm_releases": RocmRelease,
        "rocm_support": RocmSupport,
        "upstream_images": UpstreamImage,
        "dev_images": DevImage,
        "wheel_indexes": WheelIndex,
        "torch_wheels": TorchWheel,
        "amd_wheels": AmdWheel,
        "libc_floors": LibcFloor,
        "gfx_products": GfxProducts,
        "peaks": Peak,
        "lifecycles": Lifecycle,
        "package_repositories": PackageRepository,
        "registry_limits": RegistryLimit,
        "driver_windows": DriverWindow,
    }
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
    book = _Book(root)
    torches = book.entries(DistroTorch)
    images = book.entries(UpstreamImage)
    facts = Facts(
        distributions=book.index(Distribution, lambda entry: entry.name),
        distro_torch=_grouped(torches),
        contents=book.index(Contents, lambda entry: (entry.family, entry.flavour)),
        rocm_releases=book.index(RocmRelease, lambda entry: entry.version),
        rocm_support=book.index(RocmSupport, lambda entry: entry.rocm),
        upstream_images=MappingProxyType(
            {
                (image.distro, image.rocm, image.torch, image.python): image
                for image in reversed(images)
                if image.distro and image.rocm and image.torch and image.python
            }
        ),
        upstream_tags=MappingProxyType({image.tag: image for image in images}),
        dev_images=book.index(DevImage, lambda entry: (entry.distro, entry.rocm)),
        wheel_indexes=book.index(WheelIndex, lambda entry: entry.rocm),
        torch_wheels=book.index(TorchWheel, lambda entry: (entry.index, entry.torch)),
        amd_wheels=book.index(AmdWheel, lambda entry: (entry.rocm, entry.torch)),
        libc_floors=book.index(LibcFloor, lambda entry: entry.platform),
        gfx_products=book.index(GfxProducts, lambda entry: entry.gfx),
        peaks=book.index(Peak, lambda entry: (entry.product, entry.dtype)),
        lifecycles=book.index(Lifecycle, lambda entry: (entry.axis, entry.value)),
        package_repositories=book.entries(PackageRepository),
        component_packages=book.entries(ComponentPackages),
        registry_limits=book.entries(RegistryLimit),
        driver_windows=book.index(DriverWindow, lambda entry: entry.rocm),
        subjects=MappingProxyType({name: book.read(name) for name in SUBJECTS}),
    )
    book.index(DistroTorch, lambda entry: (entry.distro, entry.torch))
    book.problems += [
        _problem("distro_torch", f'"{entry.distro}" is not a distribution of distributions.yaml')
        for entry in torches
        if entry.distro not in facts.distributions
    ]
    if book.problems:
        raise RefusedError(book.problems)
    return facts


def _grouped(torches: tuple[DistroTorch, ...]) -> Mapping[str, tuple[DistroTorch, ...]]:
    grouped: dict[str, tuple[DistroTorch, ...]] = {}
    for entry in torches:
        grouped[entry.distro] = (*grouped.get(entry.distro, ()), entry)
    return MappingProxyType(grouped)


class _Book:
    """The files of one folder, each read once, and what is wrong with them."""

    def __init__(self, root: Traversable) -> None:
        self._root = root
        self._read: dict[str, tuple[Fact, ...]] = {}
        self.problems = _strangers(root)

    def read(self, subject: str) -> tuple[Fact, ...]:
        """Return the entries of a subject."""
        if subject not in self._read:
            self._read[subject] = _read(self._root, subject, SUBJECTS[subject], self.problems)
        return self._read[subject]

    def entries(self, kind: type[_F]) -> tuple[_F, ...]:
        """Return the entries of the one subject that has entries of this kind."""
        entries = self.read(_subject(kind))
        return tuple(entry for entry in entries if isinstance(entry, kind))

    def index(self, kind: type[_F], key: Callable[[_F], _K]) -> Mapping[_K, _F]:
        """Return the same by a key that no two entries may share."""
        table: dict[_K, _F] = {}
        for entry in self.entries(kind):
            if key(entry) in table:
                told = f"two entries are about {key(entry)}"
                self.problems.append(_problem(_subject(kind), told))
            table[key(entry)] = entry
        return MappingProxyType(table)


def _subject(kind: type[Fact]) -> str:
    return next(name for name, other in SUBJECTS.items() if other is kind)


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


def _problem(subject: str, what: str) -> Problem:
    return Problem("FACTS_INVALID", what, where=f"facts/{subject}.yaml")
