"""Release tags of one image: the dated one never moves, the others never go back in time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from builder.errors import CouldNotError, Problem, RefusedError
from builder.matrix.tags import dated_tag
from builder.oci import RUN_RECORD, Descriptor, canonical_json
from builder.plan.moving import Age, newer_there

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.engines.registry import Registry
    from builder.oci import Digest
    from builder.pipeline.session import Job, Session

SEQUENCE = "io.rocm-torch.sequence"
_CREATED = "org.opencontainers.image.created"


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms a run publishes.

    Attributes:
        sequence: number of the run, counted as runs start; without one, epochs and versions decide
            what is older.
        overwrite: let a dated tag move that names another image.
        backwards: let moving tags move to an older image.
    """

    sequence: int | None = None
    overwrite: bool = False
    backwards: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """The tags that name the image now, and those left to a newer one, each with the reason."""

    tags: tuple[str, ...]
    held: tuple[tuple[str, str], ...] = ()


def release_tags(session: Session, job: Job, digest: Digest) -> tuple[str, ...]:
    """Return the tags of an image, the dated one first and the widest last."""
    dated = dated_tag(job.cell, job.locked.epoch, digest)
    return (dated, *session.matrix.tags_of(job.cell))


def run_document(job: Job, sequence: int) -> bytes:
    """Return what is attached to an image to say which run published it."""
    return canonical_json(
        {"schema": "rocm-torch/run/v1", "cell": job.cell.id, "sequence": sequence}
    )


def set_tags(
    registry: Registry,
    repository: str,
    digest: Digest,
    tags: Sequence[str],
    *,
    ours: Age,
    terms: Terms,
) -> Moved:
    """Set release tags, the first of which is the dated one, and read each back.

    Every tag is made from ``digest``, which our own build returned; none by looking another up.

    Raises:
        RefusedError: ``TAG_EXISTS_OTHER_DIGEST``, before anything is written.
        CouldNotError: ``TAG_NOT_SET``.
    """
    dated, *moving = tags
    _check_dated(registry, repository, digest, dated, terms)
    ages: dict[Digest, Age | None] = {}
    written, held = [dated], []
    registry.tag(repository, digest, dated)
    for tag in moving:
        there = registry.head(repository, tag)
        reason = None
        if there is not None and there.digest != digest and not terms.backwards:
            if there.digest not in ages:
                ages[there.digest] = age_of(registry, repository, there.digest)
            age = ages[there.digest]
            reason = newer_there(ours, age) if age else None
        if reason is not None:
            held.append((tag, reason))
            continue
        if there is None or there.digest != digest:
            registry.tag(repository, digest, tag)
        written.append(tag)
    check_tags(registry, repository, digest, written)
    return Moved(tuple(written), tuple(held))


def age_of(registry: Registry, repository: str, digest: Digest) -> Age | None:
    """Return how new an image of a registry is; ``None`` where it is none of ours."""
    runs = [
        int(number)
        for one in registry.referrers(repository, digest, RUN_RECORD)
        if (number := one.annotations.get(SEQUENCE, "")).isdecimal()
    ]
    labels = image_labels(registry, repository, digest)
    try:
        epoch = int(datetime.fromisoformat(labels.get(_CREATED, "")).timestamp())
        return Age.of_labels(labels, epoch, max(runs, default=None))
    except ValueError:
        return None


def image_labels(registry: Registry, repository: str, digest: Digest) -> dict[str, str]:
    """Return the labels of an image of a registry; none where it has no configuration."""
    _, raw = registry.get_manifest(repository, digest)
    document: dict[str, Any] = json.loads(raw)
    if "config" not in document:
        return {}
    config = b"".join(registry.get_blob(repository, Descriptor.from_json(document["config"])))
    labels = json.loads(config).get("config", {}).get("Labels") or {}
    return {str(key): str(value) for key, value in labels.items()}


def check_tags(registry: Registry, repository: str, digest: Digest, tags: Sequence[str]) -> None:
    """Read tags back; ``CouldNotError`` (``TAG_NOT_SET``) with each that names something else."""
    problems = []
    for tag in tags:
        found = registry.head(repository, tag)
        if found is None or found.digest != digest:
            problems.append(
                Problem(
                    code="TAG_NOT_SET",
                    what=f"{tag} names {found.digest if found else 'nothing'} after it was set",
                    where=f"{registry.host}/{repository}:{tag}",
                    why="another run may be publishing at the same time",
                    fix="run the same command again when no other run publishes",
                )
            )
    if problems:
        raise CouldNotError(problems)


def _check_dated(
    registry: Registry, repository: str, digest: Digest, dated: str, terms: Terms
) -> None:
    there = registry.head(repository, dated)
    if there is None or there.digest == digest or terms.overwrite:
        return
    raise RefusedError(
        Problem(
            code="TAG_EXISTS_OTHER_DIGEST",
            what=f"{dated} names {there.digest} already, and this image is {digest}",
            where=f"{registry.host}/{repository}:{dated}",
            why="a dated tag never moves: machines that have pulled it keep the old image",
            fix="find out who set it; to move it all the same: rocm-torch publish --overwrite",
        )
    )
