"""Candidates: images in a registry without a release tag, that other machines test and publish.

A candidate is known by its digest. What was found out about it travels as its referrers: the
record of its build, its SBOMs, its test reports. Its tag is leased: it keeps the image from the
registry's clean-up until the day in its name, and names the run that pushed it, so that no run
takes away what another one still needs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Self

from builder.engines.registry import Attachment
from builder.errors import BadCallError, CouldNotError, Problem, RefusedError
from builder.oci import BUILD_RECORD, TEST_REPORT, Digest
from builder.pipeline.publish import push_by_digest
from builder.pipeline.sbom import FILES
from builder.pipeline.selftest import report_path

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from builder.engines.registry import Registry
    from builder.pipeline.session import Job, Session

SCHEMA = "rocm-torch/candidates/v1"
PREFIX = "candidate-"
LEASE = timedelta(days=14)
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_LEASED = re.compile(rf"{PREFIX}([0-9]{{4}})([0-9]{{2}})([0-9]{{2}})-.+")


@dataclass(frozen=True, slots=True)
class Candidate:
    """Where a candidate lies: what one job of a pipeline hands to the next."""

    cell: str
    registry: str
    repository: str
    digest: Digest
    tag: str

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Read the JSON form; ``KeyError`` or ``ValueError`` where it is none."""
        return cls(
            value["cell"],
            value["registry"],
            value["repository"],
            Digest(value["digest"]),
            value["tag"],
        )

    def to_json(self) -> dict[str, str]:
        """Return the JSON form."""
        return {
            "cell": self.cell,
            "registry": self.registry,
            "repository": self.repository,
            "digest": self.digest,
            "tag": self.tag,
        }


def candidate_tag(run: str, digest: Digest, until: date) -> str:
    """Return the leased tag of a candidate.

    Args:
        run: id of the run and its attempt, ``101-1``.
        digest: of the image.
        until: the last day of the lease.

    Raises:
        BadCallError: ``BAD_RUN_ID``.
    """
    if not _RUN.fullmatch(run):
        raise BadCallError(
            Problem(
                "BAD_RUN_ID",
                f"{run!r} cannot be part of a tag.",
                fix="write letters, digits, dots and hyphens, 40 at most: 101-1",
            )
        )
    return f"{PREFIX}{until:%Y%m%d}-{run}-{digest.hex[:8]}"


def expired(tags: Iterable[str], today: date) -> tuple[str, ...]:
    """Return the candidate tags whose lease has ended."""
    found = []
    for tag in tags:
        match = _LEASED.fullmatch(tag)
        if match and "".join(match.groups()) < f"{today:%Y%m%d}":
            found.append(tag)
    return tuple(found)


def push_candidate(session: Session, job: Job, registry: Registry, run: str) -> Candidate:
    """Push the built image of ``job`` with what is known of it, under a leased tag.

    Raises:
        RefusedError: ``NOT_BUILT``.
        CouldNotError: the registry did not do its part.
    """
    built = session.built(job.cell)
    if built is None:
        raise RefusedError(Problem("NOT_BUILT", "there is no image", where=job.cell.id))
    repository, digest = session.matrix.image, Digest(built.digest)
    pushed = push_by_digest(session, built, registry)
    content = built.model_dump_json(indent=1, by_alias=True).encode() + b"\n"
    attachments = [Attachment(BUILD_RECORD, content, BUILD_RECORD, title="build.json")]
    attachments += _known(session, job, digest)
    registry.attach_all(repository, pushed.descriptor, attachments)
    until = session.tools.now().date() + LEASE
    tag = candidate_tag(run, digest, until)
    registry.tag(repository, digest, tag)
    return Candidate(job.cell.id, registry.host, repository, digest, tag)


def attach_report(session: Session, registry: Registry, one: Candidate, level: str) -> None:
    """Attach the report of a test that was run here to the candidate."""
    content = report_path(session, one.digest, level).read_bytes()
    subject = registry.head(one.repository, one.digest)
    if subject is None:
        raise gone(one)
    report = Attachment(TEST_REPORT, content, TEST_REPORT, title=f"test-{level}.json")
    registry.attach_all(one.repository, subject, (report,))


def read_candidates(path: Path) -> tuple[Candidate, ...]:
    """Read a file of candidates, or all such files below a folder.

    Raises:
        BadCallError: ``NO_CANDIDATES``.
        RefusedError: ``CANDIDATES_DAMAGED``.
    """
    files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
    found: dict[str, Candidate] = {}
    for file in files:
        try:
            document = json.loads(file.read_bytes())
            if document["schema"] != SCHEMA:
                raise ValueError(f"its schema is {document['schema']!r}")
            entries = [Candidate.from_json(entry) for entry in document["candidates"]]
        except FileNotFoundError:
            continue
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise RefusedError(
                Problem(
                    "CANDIDATES_DAMAGED",
                    f"This is no list of candidates: {error}",
                    where=str(file),
                    fix="make it again: rocm-torch candidate --file FILE CELL",
                )
            ) from error
        found |= {one.cell: one for one in entries}
    if not found:
        raise BadCallError(
            Problem(
                "NO_CANDIDATES",
                "There is no list of candidates.",
                where=str(path),
                fix="make one: rocm-torch candidate --file FILE CELL",
            )
        )
    return tuple(found.values())


def to_text(candidates: Iterable[Candidate]) -> str:
    """Return the text of a file of candidates."""
    document = {"schema": SCHEMA, "candidates": [one.to_json() for one in candidates]}
    return json.dumps(document, indent=1) + "\n"


def _known(session: Session, job: Job, digest: Digest) -> list[Attachment]:
    folder = session.workspace.evidence(digest)
    wanted = [(kind, folder / name) for kind, name in FILES.items()]
    wanted += [
        (TEST_REPORT, report_path(session, digest, level)) for level in job.cell.policy.levels
    ]
    return [
        Attachment(kind, path.read_bytes(), kind, title=path.name)
        for kind, path in wanted
        if path.is_file()
    ]


def gone(one: Candidate, what: str = "no such image") -> CouldNotError:
    """Return the failure of a candidate that is not in the registry."""
    return CouldNotError(
        Problem(
            "CANDIDATE_GONE",
            f"{one.registry} has {what}",
            where=f"{one.registry}/{one.repository}@{one.digest}",
            why="its lease may have ended, or its push did not get so far",
            fix=f"push it again: rocm-torch candidate {one.cell}",
        )
    )


def untrue(one: Candidate, what: str) -> RefusedError:
    """Return the refusal of a candidate whose referrers contradict it."""
    return RefusedError(
        Problem(
            "CANDIDATE_NOT_TRUE",
            f"{what}.",
            where=f"{one.registry}/{one.repository}@{one.digest}",
            why="someone else writes to this repository",
            fix=f"push it again: rocm-torch candidate {one.cell}",
        )
    )
