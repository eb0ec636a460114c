"""``index.json`` of a layout: read by many, written by us and by BuildKit at the same time."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from builder.engines.layout.files import replace_file, writing
from builder.errors import CouldNotError, Problem
from builder.oci import INDEX, Descriptor, Digest, canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

IMAGE_NAME = "io.containerd.image.name"
REF_NAME = "org.opencontainers.image.ref.name"


class IndexFile:
    """The list of images of one layout.

    Writers hold the lock that BuildKit takes too (flock on ``index.json.lock``), and put a new
    file in place of the old one; entries and members that we do not know are kept as they are.
    BuildKit does not wait for the lock ("could not lock"), so it is held for one small write only.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / "index.json"

    def descriptors(self) -> tuple[Descriptor, ...]:
        """Return every entry that is a descriptor, in file order, duplicates included."""
        result: list[Descriptor] = []
        for entry in self._read()["manifests"]:
            try:
                result.append(Descriptor.from_json(entry))
            except (KeyError, TypeError, ValueError, AttributeError):
                continue  # not ours to judge: it stays in the file and is never chosen
        return tuple(result)

    def put(self, descriptor: Descriptor) -> None:
        """Add an entry; another image that had the same name keeps its entry and loses the name."""
        name = descriptor.annotations.get(IMAGE_NAME)
        new = descriptor.to_json()

        def change(entries: list[Any]) -> list[Any]:
            kept: list[Any] = []
            for entry in entries:
                if _digest(entry) == new["digest"] and _name(entry) in (None, name):
                    continue
                kept.append(_without_name(entry) if name and _name(entry) == name else entry)
            return [*kept, new]

        self._update(change)

    def remove(self, digest: Digest) -> bool:
        """Remove every entry of ``digest``; tell whether there was one. Blobs stay."""
        found: list[bool] = []

        def change(entries: list[Any]) -> list[Any]:
            kept = [entry for entry in entries if _digest(entry) != digest]
            found.append(len(kept) != len(entries))
            return kept

        self._update(change)
        return found[0]

    def _read(self) -> dict[str, Any]:
        try:
            return self._parse()
        except ValueError:
            pass  # BuildKit writes the file in place: look again when no writer is at work
        with self._lock():
            try:
                return self._parse()
            except ValueError as error:
                raise self._unreadable(str(error)) from error

    def _parse(self) -> dict[str, Any]:
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return {"schemaVersion": 2, "mediaType": INDEX, "manifests": []}
        except OSError as error:
            raise self._unreadable(error.strerror or str(error)) from error
        value = json.loads(raw)
        if not isinstance(value, dict) or not isinstance(value.get("manifests") or [], list):
            raise ValueError("it is not an object with a list `manifests`")
        return value | {"manifests": value.get("manifests") or []}

    def _update(self, change: Callable[[list[Any]], list[Any]]) -> None:
        with self._lock():
            try:
                value = self._parse()
            except ValueError as error:
                raise self._unreadable(str(error)) from error
            entries = change(value["manifests"])
            if entries != value["manifests"] or not self._path.exists():
                replace_file(self._path, canonical_json(value | {"manifests": entries}))

    @contextmanager
    def _lock(self) -> Iterator[None]:
        # BuildKit removes the lock file when it is done, so a lock that we got on a file which
        # has no name any more guards nothing: take the one that is there now.
        path = self._root / "index.json.lock"
        while True:
            with writing(self._root):
                self._root.mkdir(parents=True, exist_ok=True)
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                try:
                    current = path.stat().st_ino == os.fstat(handle).st_ino
                except FileNotFoundError:
                    current = False
                if current:
                    yield
                    return
            finally:
                os.close(handle)

    def _unreadable(self, reason: str) -> CouldNotError:
        return CouldNotError(
            Problem(
                code="LAYOUT_UNREADABLE",
                what=f"the list of images of the OCI layout cannot be read: {reason}",
                where=str(self._path),
                fix=f"move {self._root} away and build again",
            )
        )


def _digest(entry: Any) -> str | None:
    value = entry.get("digest") if isinstance(entry, dict) else None
    return value if isinstance(value, str) else None


def _name(entry: Any) -> str | None:
    annotations = entry.get("annotations") if isinstance(entry, dict) else None
    value = annotations.get(IMAGE_NAME) if isinstance(annotations, dict) else None
    return value if isinstance(value, str) else None


def _without_name(entry: dict[str, Any]) -> dict[str, Any]:
    annotations = {
        key: value
        for key, value in entry["annotations"].items()
        if key not in (IMAGE_NAME, REF_NAME)
    }
    rest = {key: value for key, value in entry.items() if key != "annotations"}
    return rest | ({"annotations": annotations} if annotations else {})
