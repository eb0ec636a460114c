"""Step publish-sif: a tested SIF as an artifact of its own, attached to the image it was made of.

Its tags are those of the image with ``-sif`` at the end, so it can take no image's tag; the form is
the one that ``apptainer pull oras://`` reads.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from builder.engines.layout.manifest import Manifest, is_index, parse_manifest, parse_object
from builder.errors import CouldNotError, IncompleteError, Problem, RefusedError
from builder.matrix.tags import SIF_SUFFIX
from builder.oci import MANIFEST, SIF_CONFIG, SIF_LAYER, Descriptor, Digest, canonical_json
from builder.pipeline.fetch import one_layer
from builder.pipeline.publish_lock import one_publisher
from builder.pipeline.sif import STEP as SIF_STEP
from builder.pipeline.sif import digest_of, not_writable
from builder.pipeline.sif_test import STEP as TEST_STEP
from builder.pipeline.signing import require_signature, sign, signed_with
from builder.pipeline.tagging import check_tags
from builder.pipeline.withdrawal import check_not_yanked
from builder.report.progress import Event, timed
from builder.report.records import PublishRecord, SifRecord, TestRecord
from builder.report.sif_report import CONDITIONS

if TYPE_CHECKING:
    from builder.engines.registry import Registry
    from builder.oci import Reference
    from builder.pipeline.session import Session

STEP = "publish-sif"
_CONFIG = b"{}"
_TITLE = "org.opencontainers.image.title"


@dataclass(frozen=True, slots=True)
class PulledSif:
    """A SIF that was pulled: where it is, its digest, and the image it was made of."""

    output: Path
    file: Digest
    size: int
    image: Digest | None


def sif_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tags of a SIF for those of its image; the flavour stays before the suffix."""
    return tuple(f"{tag}{SIF_SUFFIX}" for tag in tags)


def planned_tags(session: Session, cell: str) -> tuple[str, ...]:
    """Return the tags that the SIF of ``cell`` would get; none where its image is not published."""
    record = session.workspace.records.read(PublishRecord, cell, "publish")
    return sif_tags(tuple(record.tags)) if record else ()


def sif_manifest(file: Descriptor, subject: Descriptor, title: str) -> bytes:
    """Return the artifact's manifest: a function of the file, the image and the file's name."""
    return canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": SIF_CONFIG,
            "config": Descriptor.of(_CONFIG, SIF_CONFIG).to_json(),
            "layers": [{**file.to_json(), "annotations": {_TITLE: title}}],
            "subject": Descriptor(subject.media_type, subject.digest, subject.size).to_json(),
        }
    )


def publish_sif(session: Session, cell: str, registry: Registry) -> PublishRecord:
    """Publish the SIF of ``cell``: the file, the artifact under the image, then the tags.

    Raises:
        IncompleteError: ``SIF_NOT_TESTED`` or ``IMAGE_NOT_PUBLISHED``.
        BadCallError: it is to be signed, and no key was named.
        RefusedError: ``YANKED``, ``SIF_TEST_FAILED``, ``SIF_CHANGED`` or ``TAG_NOT_A_SIF``.
        CouldNotError: the registry did not do its part.
    """
    owner = session.cell(cell)
    made, image = _tested(session, cell), _published(session, cell, registry)
    if made.digest != image.digest:
        raise _stale(cell, made, image)
    tools, repository, path = session.tools, image.repository, Path(made.path)
    doing = f"to {registry.host}/{repository}"
    with timed(tools.progress, cell, STEP, tools.clock, doing) as seconds:
        subject = registry.head(repository, image.digest)
        if subject is None:
            raise _not_published(cell, registry)
        file = Descriptor(SIF_LAYER, Digest(made.file), made.size)
        sent = _push_blobs(session, cell, registry, repository, path, file)
        body = sif_manifest(file, subject, f"{cell}.sif")
        artifact = Descriptor(MANIFEST, Digest.of(body), len(body), artifact_type=SIF_CONFIG)
        tags = sif_tags(tuple(image.tags))
        with one_publisher(tools, f"{registry.host}/{repository}"):
            check_not_yanked(registry, repository, subject.digest)
            _check_places(registry, repository, tags)
            registry.attach_manifest(repository, subject, artifact, body)
            sign(session, owner, registry, repository, (artifact,))
            tags = sif_tags(_where_image_is(registry, repository, image))
            for tag in tags:
                registry.tag(repository, artifact.digest, tag)
            check_tags(registry, repository, artifact.digest, tags)
        record = PublishRecord(
            cell=cell,
            step=STEP,
            finished=tools.now(),
            seconds=seconds(),
            digest=image.digest,
            registry=registry.host,
            repository=repository,
            tags=list(tags),
            signed_with=signed_with(session, owner),
            referrers={f"{cell}.sif": artifact.digest},
            bytes_sent=sent,
        )
        session.workspace.records.write(record)
    return record


def pull_sif(
    session: Session,
    registry: Registry,
    reference: Reference,
    output: Path,
    *,
    public: bytes | None = None,
) -> PulledSif:
    """Fetch a SIF, hashing it while it comes; ``output`` appears when the digest agreed.

    Args:
        session: the run.
        registry: where it lies.
        reference: the SIF, or the image that it is attached to.
        output: the file.
        public: the key (PEM) that it must be signed with, looked at before it is fetched.

    Raises:
        CouldNotError: ``NOT_IN_REGISTRY``, ``NOT_A_SIF``, ``DIGEST_MISMATCH``, or a full disk.
        RefusedError: ``YANKED``, ``NOT_SIGNED`` or ``SIGNATURE_WRONG``.
    """
    manifest = _find(registry, reference)
    if public is not None:
        require_signature(session, registry, reference.repository, manifest.digest, public)
    if manifest.subject is not None:
        check_not_yanked(registry, reference.repository, manifest.subject.digest)
    layer = one_layer(manifest.layers, SIF_LAYER, str(reference))
    tools, done = session.tools, 0
    if output.is_dir():
        raise not_writable(output, "it is a folder")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{output.name}.", dir=output.parent)
    except OSError as error:
        raise not_writable(output, error.strerror) from error
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            for piece in registry.get_blob(reference.repository, layer):
                tools.go_on()
                stream.write(piece)
                done += len(piece)
                tools.progress.tell(Event("", "pull-sif", "doing", "SIF", done, layer.size))
            stream.flush()
            os.fsync(stream.fileno())
        partial.chmod(0o755)
        partial.replace(output)
    except OSError as error:
        raise not_writable(output, error.strerror) from error
    finally:
        partial.unlink(missing_ok=True)
    image = manifest.subject.digest if manifest.subject else None
    return PulledSif(output, layer.digest, layer.size, image)


def _find(registry: Registry, reference: Reference) -> Manifest:
    """Return the manifest of a SIF: the one that is named, or the one attached to that image."""
    where = str(reference)
    name = reference.digest or reference.tag or "latest"
    descriptor, body = registry.get_manifest(reference.repository, name)
    if not is_index(parse_object(body, where)):
        manifest = parse_manifest(body, where)
        if manifest.artifact_type == SIF_CONFIG or manifest.config.media_type == SIF_CONFIG:
            return manifest
    attached = registry.referrers(reference.repository, descriptor.digest, SIF_CONFIG)
    if not attached:
        raise CouldNotError(
            Problem(
                code="NOT_A_SIF",
                what="it is an image, and no SIF is attached to it",
                where=where,
                fix=f"convert it yourself: rocm-torch sif {reference}",
            )
        )
    _, body = registry.get_manifest(reference.repository, attached[-1].digest)
    return parse_manifest(body, where)


def _tested(session: Session, cell: str) -> SifRecord:
    records = session.workspace.records
    made, test = records.read(SifRecord, cell, SIF_STEP), records.read(TestRecord, cell, TEST_STEP)
    if made is None or test is None or test.digest != made.digest:
        missing = "no SIF was made" if made is None else "its SIF was not tested"
        raise IncompleteError(
            Problem(
                code="SIF_NOT_TESTED",
                what=f"{missing}, and what is not tested is not published",
                where=cell,
                fix=f"run `rocm-torch sif {cell}`, then `rocm-torch test --sif FILE`",
            )
        )
    if test.verdict != "pass":
        raise RefusedError(
            Problem("SIF_TEST_FAILED", f"the self-test in its SIF is {test.verdict}", where=cell)
        )
    path = Path(made.path)
    report = session.workspace.evidence(Digest(made.digest)) / f"{TEST_STEP}.json"
    tested = json.loads(report.read_bytes())
    if not path.is_file() or not tested["image"]["file"] == made.file == digest_of(path)[0]:
        raise RefusedError(
            Problem(
                code="SIF_CHANGED",
                what="the file is not the one that was made and tested",
                where=made.path,
                fix=f"run `rocm-torch sif --force {cell}` and test it again",
            )
        )
    tried = {run["condition"] for run in tested["runs"]}
    left_out = [condition for condition in CONDITIONS if condition not in tried]
    if left_out:
        raise IncompleteError(
            Problem(
                code="SIF_NOT_TESTED",
                what=f"its SIF was not tested on these hosts: {', '.join(left_out)}",
                where=cell,
                fix=f"run `rocm-torch test --sif {path}` without --host",
            )
        )
    return made


def _published(session: Session, cell: str, registry: Registry) -> PublishRecord:
    record = session.workspace.records.read(PublishRecord, cell, "publish")
    if record is None or record.registry != registry.host:
        raise _not_published(cell, registry)
    return record


def _not_published(cell: str, registry: Registry) -> IncompleteError:
    return IncompleteError(
        Problem(
            code="IMAGE_NOT_PUBLISHED",
            what=f"the image is not published to {registry.host}: its SIF has nothing to go with",
            where=cell,
            fix=f"run `rocm-torch publish --registry {registry.host} {cell}` first",
        )
    )


def _stale(cell: str, made: SifRecord, image: PublishRecord) -> IncompleteError:
    return IncompleteError(
        Problem(
            code="SIF_STALE",
            what=f"the SIF was made of {made.digest}, and the image published is {image.digest}",
            where=cell,
            fix=f"run `rocm-torch sif {cell}` and test it, or publish the image",
        )
    )


def _push_blobs(
    session: Session,
    cell: str,
    registry: Registry,
    repository: str,
    path: Path,
    file: Descriptor,
) -> int:
    tools, sent = session.tools, 0

    def add(count: int) -> None:
        nonlocal sent
        tools.go_on()
        sent += count
        tools.progress.tell(Event(cell, STEP, "doing", "pushing the SIF", sent, file.size))

    config = Descriptor.of(_CONFIG, SIF_CONFIG)
    outcomes = (
        registry.push_blob(repository, config, _CONFIG),
        registry.push_blob(repository, file, path, on_bytes=add),
    )
    return sum(outcome.bytes_sent for outcome in outcomes)


def _check_places(registry: Registry, repository: str, tags: tuple[str, ...]) -> None:
    """Raise where one of the tags names something that is no SIF: it is not ours to move."""
    for tag in tags:
        if registry.head(repository, tag) is None:
            continue
        _, body = registry.get_manifest(repository, tag)
        if parse_object(body, tag).get("artifactType") != SIF_CONFIG:
            raise RefusedError(
                Problem(
                    code="TAG_NOT_A_SIF",
                    what=f"{tag} names something that is no SIF, and is left as it is",
                    where=f"{registry.host}/{repository}:{tag}",
                    fix="find out who set it, and remove it there",
                )
            )


def _where_image_is(registry: Registry, repository: str, image: PublishRecord) -> tuple[str, ...]:
    """Return the image's tags that name it today: a SIF never names an older image than they do."""
    heads = {tag: registry.head(repository, tag) for tag in image.tags}
    return tuple(tag for tag, head in heads.items() if head and head.digest == image.digest)
