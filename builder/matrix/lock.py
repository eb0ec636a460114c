"""The lock: what each cell resolved to. A cell without an entry is ``unlocked`` and never released.

The text form is JSON with sorted keys, so that a change of one cell is a small diff.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

from builder.errors import Problem, RefusedError
from builder.oci import Digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.matrix.cells import Wheels

SCHEMA = "rocm-torch/lock/v1"
BaseOrigin = Literal["registry", "bootstrap"]


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """One suite of a package archive as it was seen: its Release date and the hash of InRelease."""

    uri: str
    suite: str
    date: datetime
    sha256: Digest

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the JSON form."""
        return cls(
            uri=str(value["uri"]),
            suite=str(value["suite"]),
            date=datetime.fromisoformat(value["date"]),
            sha256=Digest(value["sha256"]),
        )

    def to_json(self) -> dict[str, str]:
        """Return the JSON form; the date is UTC in ISO 8601."""
        return {
            "uri": self.uri,
            "suite": self.suite,
            "date": self.date.astimezone(UTC).isoformat(),
            "sha256": self.sha256,
        }


@dataclass(frozen=True, slots=True)
class LockedWheel:
    """One wheel: the project and version, its file name, the hash of the file, and where it was.

    ``url`` is the canonical address, without a login. It is None where there is none: the file came
    from a folder, or from a mirror that keeps files elsewhere than the original does. Such a file
    is found by its name on the cell's indexes.
    """

    name: str
    version: str
    file: str
    sha256: Digest
    url: str | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the JSON form."""
        return cls(
            name=str(value["name"]),
            version=str(value["version"]),
            file=str(value["file"]),
            sha256=Digest(value["sha256"]),
            url=str(value["url"]) if value.get("url") else None,
        )

    def to_json(self) -> dict[str, str]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "version": self.version,
            "file": self.file,
            "sha256": self.sha256,
            **({"url": self.url} if self.url is not None else {}),
        }


@dataclass(frozen=True, slots=True)
class LockedCell:
    """What one cell resolved to.

    Attributes:
        base: digest of the image that FROM resolves to.
        origin: where the base came from: a registry, or a bootstrap from the package archive.
        archives: the package archives that the build reads.
        epoch: seconds since 1970, the one time that an image may contain.
        wheels: every wheel that the image installs, those that torch needs included, by name.
        requirements: what the cell asked for when these wheels were found; other wishes need
            another lock.
        ref: the reference whose digest ``base`` is; ``None`` in a lock of an earlier version.
    """

    base: Digest
    origin: BaseOrigin
    archives: tuple[ArchiveState, ...]
    epoch: int
    wheels: tuple[LockedWheel, ...] = ()
    requirements: tuple[str, ...] = ()
    ref: str | None = None

    @property
    def created(self) -> datetime:
        """Return the epoch as a UTC time."""
        return datetime.fromtimestamp(self.epoch, UTC)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the JSON form; ``KeyError``, ``TypeError`` or ``ValueError`` where it is none."""
        origin: BaseOrigin = value["base"]["origin"]
        if origin not in ("registry", "bootstrap"):
            raise ValueError(f"unknown origin of a base: {origin!r}")
        return cls(
            base=Digest(value["base"]["digest"]),
            origin=origin,
            archives=tuple(ArchiveState.from_json(entry) for entry in value["archives"]),
            epoch=int(value["epoch"]),
            wheels=tuple(LockedWheel.from_json(entry) for entry in value.get("wheels", ())),
            requirements=tuple(str(text) for text in value.get("requirements", ())),
            ref=str(value["base"]["ref"]) if value["base"].get("ref") else None,
        )

    def answers(self, ref: str, wheels: Wheels | None) -> bool:
        """Tell whether base and wheels were found for what is asked for now.

        Args:
            ref: the reference that stands in FROM.
            wheels: what the cell installs.
        """
        same = not self.wheels or self.requirements == (wheels.requirements if wheels else ())
        return same and self.ref in (None, ref)

    def deciding(self) -> dict[str, Any]:
        """Return the JSON form of what decides an image: a wheel counts by its hash alone."""
        wheels = [
            {name: value for name, value in wheel.to_json().items() if name != "url"}
            for wheel in self.wheels
        ]
        return {**self.to_json(), **({"wheels": wheels} if wheels else {})}

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "base": {
                "digest": self.base,
                "origin": self.origin,
                **({"ref": self.ref} if self.ref is not None else {}),
            },
            "archives": [archive.to_json() for archive in self.archives],
            "epoch": self.epoch,
            **({"wheels": [wheel.to_json() for wheel in self.wheels]} if self.wheels else {}),
            **({"requirements": list(self.requirements)} if self.requirements else {}),
        }


@dataclass(frozen=True, slots=True)
class Lock:
    """All locked cells by cell id."""

    cells: Mapping[str, LockedCell] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def from_text(cls, text: str | bytes, name: str) -> Self:
        """Read the text of the lock file ``name``; bytes must be UTF-8.

        Raises:
            RefusedError: ``LOCK_DAMAGED``, when it is not a lock of this version.
        """
        try:
            document = json.loads(text)
            if document["schema"] != SCHEMA:
                raise ValueError(f"its schema is {document['schema']!r}")
            cells = {key: LockedCell.from_json(entry) for key, entry in document["cells"].items()}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise RefusedError(
                Problem(
                    code="LOCK_DAMAGED",
                    what=f"this is not a lock file that we can read: {error}",
                    where=name,
                    fix="restore it from git, or delete it and run `rocm-torch lock`",
                )
            ) from error
        return cls(MappingProxyType(cells))

    def to_text(self) -> str:
        """Return the text form, ending with a newline."""
        document = {
            "schema": SCHEMA,
            "cells": {key: cell.to_json() for key, cell in sorted(self.cells.items())},
        }
        return json.dumps(document, indent=1, sort_keys=True) + "\n"

    def with_cells(self, cells: Mapping[str, LockedCell]) -> Self:
        """Return a lock in which ``cells`` replace or join the present ones."""
        return type(self)(MappingProxyType({**self.cells, **cells}))
