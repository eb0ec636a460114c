"""Taking a release back: moving tags to an earlier image, and marking an image as withdrawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.engines.registry import Attachment
from builder.errors import BadCallError, Problem, RefusedError
from builder.matrix.tags import SIF_SUFFIX, claimed_tags, is_dated
from builder.oci import SIF_CONFIG, YANK_RECORD, Digest, canonical_json
from builder.pipeline.publish_lock import one_publisher
from builder.pipeline.tagging import check_tags, image_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from builder.engines.registry import Registry
    from builder.pipeline.session import Session


@dataclass(frozen=True, slots=True)
class Change:
    """A tag that moved: from what it named to what it names; None stands for nothing."""

    tag: str
    before: Digest | None
    after: Digest | None


def check_not_yanked(registry: Registry, repository: str, digest: Digest) -> None:
    """Raise where an image was withdrawn.

    Raises:
        RefusedError: ``YANKED``, with the reason that was given.
    """
    for mark in registry.referrers(repository, digest, YANK_RECORD):
        reason = mark.annotations.get("io.rocm-torch.reason", "no reason was given")
        raise RefusedError(
            Problem(
                code="YANKED",
                what=f"{digest} was withdrawn: {reason}",
                where=f"{registry.host}/{repository}@{digest}",
                fix="change what was wrong and build again: the new image has another digest",
            )
        )


def rollback(
    session: Session, registry: Registry, tags: Sequence[str], target: str
) -> tuple[Change, ...]:
    """Move tags of the matrix to a released image.

    Args:
        session: the run.
        registry: where.
        tags: moving tags; the dated ones never move.
        target: a dated tag or a digest.

    Raises:
        BadCallError: a tag is none of the matrix's, or the target is not in the registry.
        RefusedError: ``YANKED``, ``NOT_RELEASED`` where the target never got a dated tag, or
            ``TAG_OF_ANOTHER_CELL``.
    """
    repository = session.matrix.image
    unknown = [tag for tag in tags if tag not in session.matrix.tags]
    if unknown:
        raise BadCallError(
            Problem(
                "NOT_A_MOVING_TAG",
                f"{', '.join(unknown)}: no moving tag of the matrix.",
                fix="`rocm-torch matrix` lists the tags; dated ones never move",
            )
        )
    digest = _released(registry, repository, target)
    check_not_yanked(registry, repository, digest)
    _check_claims(session, registry, digest, tags)
    with one_publisher(session.tools, f"{registry.host}/{repository}"):
        return _move(session, registry, tags, digest)


def yank(
    session: Session, registry: Registry, target: str, *, reason: str, to: str | None
) -> tuple[Change, ...]:
    """Mark an image as withdrawn; tags that name it move to the image ``to``.

    The image stays where it is, so that what runs on it can be looked at; its dated tag does, too.

    Raises:
        BadCallError: the target is not in the registry.
        RefusedError: ``YANK_LEAVES_TAGS``, where moving tags name it and ``to`` is not given.
    """
    repository = session.matrix.image
    digest = _released(registry, repository, target)
    naming = [tag for tag in session.matrix.tags if _names(registry, repository, tag, digest)]
    if naming and to is None:
        raise RefusedError(
            Problem(
                "YANK_LEAVES_TAGS",
                f"{', '.join(naming)}: these tags name the image.",
                where=f"{registry.host}/{repository}@{digest}",
                why="who follows them would go on getting it",
                fix="say which released image they get: --to DATED-TAG",
            )
        )
    other = _released(registry, repository, to) if to is not None else None
    if other == digest:
        raise BadCallError(Problem("YANK_TO_ITSELF", "--to names the image that is withdrawn."))
    if other is not None:
        check_not_yanked(registry, repository, other)
        _check_claims(session, registry, other, naming)
    with one_publisher(session.tools, f"{registry.host}/{repository}"):
        changes = _move(session, registry, naming, other) if other else ()
        subject = registry.get_manifest(repository, digest)[0]
        content = canonical_json({"schema": "rocm-torch/yank/v1", "reason": reason})
        notes = {"io.rocm-torch.reason": reason}
        mark = Attachment(YANK_RECORD, content, YANK_RECORD, notes, title="yank.json")
        registry.attach_all(repository, subject, (mark,))
    return changes


def _check_claims(
    session: Session, registry: Registry, digest: Digest, tags: Iterable[str]
) -> None:
    """Raise where the cell of an image has no claim to a tag: `cpu` never names an image for GPUs.

    A cell that is no longer in the matrix is not judged.
    """
    label = image_labels(registry, session.matrix.image, digest).get("io.rocm-torch.cell")
    for cell in session.matrix.cells:
        foreign = [tag for tag in tags if tag not in claimed_tags(cell)]
        if cell.id == label and foreign:
            raise RefusedError(
                Problem(
                    "TAG_OF_ANOTHER_CELL",
                    f"{', '.join(foreign)}: an image of {cell.id} is no image for this tag.",
                    where=f"{registry.host}/{session.matrix.image}@{digest}",
                    fix="name an image of a cell that claims the tag: `rocm-torch explain TAG`",
                )
            )


def _move(
    session: Session, registry: Registry, tags: Iterable[str], digest: Digest
) -> tuple[Change, ...]:
    """Let tags name an image, and those of SIF files the one made of it, or nothing."""
    repository, changes = session.matrix.image, []
    for tag in tags:
        before = registry.head(repository, tag)
        registry.tag(repository, digest, tag)
        changes.append(Change(tag, before.digest if before else None, digest))
    check_tags(registry, repository, digest, [change.tag for change in changes])
    moved = tuple(changes)
    return moved + tuple(_follow(session, registry, digest, [change.tag for change in moved]))


def _follow(
    session: Session, registry: Registry, digest: Digest, tags: Iterable[str]
) -> Iterator[Change]:
    repository = session.matrix.image
    made = registry.referrers(repository, digest, SIF_CONFIG)
    for tag in (f"{tag}{SIF_SUFFIX}" for tag in tags):
        before = registry.head(repository, tag)
        if before is None or (made and before.digest == made[-1].digest):
            continue
        if made:
            registry.tag(repository, made[-1].digest, tag)
            yield Change(tag, before.digest, made[-1].digest)
        elif registry.delete_tag(repository, tag):
            yield Change(tag, before.digest, None)
        else:
            told = f"warning: {tag} still names the SIF of another image: delete it in the registry"
            session.tools.progress.say("", "withdraw", told)


def _names(registry: Registry, repository: str, tag: str, digest: Digest) -> bool:
    found = registry.head(repository, tag)
    return found is not None and found.digest == digest


def _released(registry: Registry, repository: str, target: str) -> Digest:
    """Return the digest of a released image, by its dated tag or digest."""
    try:
        found = registry.head(repository, target.rpartition("@")[2].rpartition("/")[2])
    except ValueError:
        found = None
    if found is None:
        raise BadCallError(
            Problem(
                "NO_SUCH_RELEASE",
                f"{registry.host} has no {target} in {repository}.",
                fix="name a dated tag or a digest of an image that was released",
            )
        )
    if not any(is_dated(tag, found.digest) for tag in registry.list_tags(repository)):
        raise RefusedError(
            Problem(
                "NOT_RELEASED",
                f"{found.digest} has no dated tag, so it never passed its gate.",
                where=f"{registry.host}/{repository}",
                fix="name an image that was released",
            )
        )
    return found.digest
