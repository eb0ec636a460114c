"""Records: one JSON file a finished step of a cell, written at once or not at all.

They make a run resumable. A record says what it was made from, so it can be seen to be out of date;
one that cannot be read is set aside, and its step is done again.
"""

from __future__ import annotations

import os
import tempfile
from datetime import datetime  # noqa: TC003 - pydantic reads annotations at run time
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from builder.errors import CouldNotError, Problem

VERSION: Literal["rocm-torch/record/v1"] = "rocm-torch/record/v1"
Verdict = Literal["pass", "fail", "incomplete"]
# Where a step can be: `test` has one record a level.
Step = str


class Record(BaseModel):
    """What every record has: its cell and step, when the step ended, and how long it took."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_: Literal["rocm-torch/record/v1"] = Field(default=VERSION, alias="schema")
    cell: str
    step: Step
    finished: datetime
    seconds: float
    digest: str
    """Digest of the image manifest that the step made or looked at."""


class BuildRecord(Record):
    """A built image: the parts of its inputs, its templates, and its compressed size in bytes.

    ``sources`` has the digest of each template by name. It decides nothing; it lets the plan name
    the template when the rendered Dockerfile changed.
    """

    inputs: dict[str, str]
    sources: dict[str, str] = {}
    size: int


class TestRecord(Record):
    """A finished self-test: level, verdict, counts, and the digest of the report's bytes."""

    __test__ = False  # not a class of tests, whatever pytest thinks of the name

    level: str
    verdict: Verdict
    passed: int
    failed: int
    skipped: int
    report: str


class SbomRecord(Record):
    """Both SBOMs of an image: digests of their bytes by media type, and the number of packages."""

    documents: dict[str, str]
    packages: int
    scanner: str


class PublishRecord(Record):
    """A published image: where, under which tags, with which referrers (digests by title).

    ``held`` has the tags that were left where they are, at a newer image, each with the reason.
    ``signed_with`` is the digest of the public key by which all of it is signed.
    """

    registry: str
    repository: str
    tags: list[str]
    held: dict[str, str] = {}
    signed_with: str | None = None
    referrers: dict[str, str]
    bytes_sent: int


class SifRecord(Record):
    """A SIF made of an image: where it lies, the digest of its bytes, its size, the converter."""

    path: str
    file: str
    size: int
    tool: str


RecordType = TypeVar("RecordType", bound=Record)


def atomic_write(path: Path, content: bytes) -> None:
    """Write ``content`` so that ``path`` holds either the old bytes or all of the new ones.

    Raises:
        CouldNotError: ``NOT_WRITABLE``.
    """
    try:
        _write(path, content)
    except OSError as error:
        raise CouldNotError(
            Problem(
                code="NOT_WRITABLE",
                what=f"it cannot be written: {error.strerror}",
                where=str(path),
                fix="name another place, or make room and give yourself the right to write there",
            )
        ) from error


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class RecordStore:
    """The records of one working copy."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, kind: type[RecordType], cell: str, step: Step) -> RecordType | None:
        """Return the record of ``step``, or None where there is none that can be read."""
        path = self._path(cell, step)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            record = kind.model_validate_json(content)
        except ValidationError:
            path.replace(path.with_suffix(".damaged"))
            return None
        return record

    def write(self, record: Record) -> None:
        """Write ``record`` over the earlier one of its cell and step."""
        text = record.model_dump_json(indent=1, by_alias=True)
        atomic_write(self._path(record.cell, record.step), text.encode() + b"\n")

    def _path(self, cell: str, step: Step) -> Path:
        return self._root / cell / f"{step}.json"
