"""Step publish: candidate by digest, evidence as referrers, then tags; the widest tag moves last.

Nothing is rebuilt and nothing is pushed that was not tested: all of it follows from the digest that
our own build returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.engines.layout import Layout
from builder.engines.registry import Attachment, PushedImage
from builder.errors import CouldNotError, IncompleteError, Problem, RefusedError
from builder.oci import (
    CYCLONEDX_JSON,
    RUN_RECORD,
    SIGSTORE_BUNDLE,
    SPDX_JSON,
    TEST_REPORT,
    WAIVER,
    Digest,
    canonical_json,
)
from builder.pipeline.executor import step_name
from builder.pipeline.publish_lock import one_publisher
from builder.pipeline.sbom import FILES
from builder.pipeline.signing import sign, signed_with
from builder.pipeline.tagging import SEQUENCE, Terms, release_tags, run_document, set_tags
from builder.pipeline.withdrawal import check_not_yanked
from builder.plan.gate import Decision, judge, worst
from builder.plan.layers import too_large
from builder.plan.moving import Age
from builder.report.progress import Event, timed
from builder.report.records import PublishRecord, TestRecord, atomic_write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from builder.engines.registry import Registry
    from builder.matrix.cells import Cell
    from builder.oci import Descriptor
    from builder.pipeline.session import Job, Session
    from builder.report.records import BuildRecord


def gate(session: Session, cell: Cell, built: BuildRecord) -> Decision:
    """Judge the image of ``built`` by the records of its tests."""
    verdicts = {}
    for level in cell.policy.levels:
        verdict = worst(one.verdict for one in _tests(session, cell, built.digest, level))
        if verdict is not None:
            verdicts[level] = verdict
    today = session.tools.now().date()
    return judge(cell.policy, verdicts, size=built.size, today=today)


def _tests(session: Session, cell: Cell, digest: str, level: str) -> Iterator[TestRecord]:
    """Return what is known of one level of an image: tests anywhere, and on each GPU family."""
    for step in (step_name(level), *(step_name(level, gfx) for gfx in cell.gfx)):
        record = session.workspace.records.read(TestRecord, cell.id, step)
        if record is not None and record.digest == digest:
            yield record


def require_open(cell: Cell, decision: Decision) -> None:
    """Raise unless the gate is open.

    Raises:
        RefusedError: ``GATE_CLOSED``, when something failed.
        IncompleteError: ``GATE_INCOMPLETE``, when something required was not done.
    """
    if decision.outcome == "pass":
        return
    reasons = "; ".join(decision.reasons)
    if decision.outcome == "fail":
        raise RefusedError(Problem("GATE_CLOSED", f"no release tags: {reasons}", where=cell.id))
    raise IncompleteError(
        Problem(
            code="GATE_INCOMPLETE",
            what=f"no release tags yet: {reasons}",
            where=cell.id,
            fix="run `rocm-torch test` where the hardware is, or waive the level in matrix.yaml",
        )
    )


def publish(
    session: Session,
    job: Job,
    built: BuildRecord,
    *,
    registry: Registry,
    force: bool = False,
    terms: Terms | None = None,
) -> PublishRecord:
    """Publish the image of ``built`` unless the registry has it with these tags and referrers.

    Args:
        session: the run.
        job: what was built.
        built: the record of the build.
        registry: where to.
        force: do every part again, whatever the record says.
        terms: what may be overwritten, and the number of the run.

    Raises:
        BadCallError: the image is to be signed, and no key was named.
        RefusedError: the gate is not open, ``YANKED``, ``TAG_EXISTS_OTHER_DIGEST``, or another key.
        IncompleteError: the gate is not open.
        CouldNotError: the registry did not do its part.
    """
    cell, tools, terms = job.cell, session.tools, terms or Terms()
    decision = gate(session, cell, built)
    require_open(cell, decision)
    digest, repository = Digest(built.digest), session.matrix.image
    tags = release_tags(session, job, digest)
    evidence = (*_evidence(session, cell, digest, decision), *_run(job, terms))
    expected = _Expected(
        registry.host,
        repository,
        digest,
        frozenset(tags),
        {_title(attachment): attachment.blob.digest for attachment in evidence},
        signed_with(session, cell),
    )
    record = session.workspace.records.read(PublishRecord, cell.id, "publish")
    if record and not force and _holds(record, registry, expected):
        tools.progress.tell(Event(cell.id, "publish", "done", "current"))
        return record
    doing = f"to {registry.host}/{repository}"
    with timed(tools.progress, cell.id, "publish", tools.clock, doing) as seconds:
        pushed = push_by_digest(session, built, registry)
        with one_publisher(tools, f"{registry.host}/{repository}"):
            check_not_yanked(registry, repository, digest)
            attached = registry.attach_all(repository, pushed.descriptor, evidence)
            for referrer in attached:
                _check_readable(registry, repository, pushed.descriptor, referrer)
            sign(session, cell, registry, repository, (pushed.descriptor, *attached))
            ours = Age(terms.sequence, cell.rocm, cell.torch, job.locked.epoch)
            moved = set_tags(registry, repository, digest, tags, ours=ours, terms=terms)
        for tag, reason in moved.held:
            told = f"warning: {tag} stays where it is, at a newer image: {reason}"
            tools.progress.say(cell.id, "publish", f"{told} [ALIAS_NEWER_EXISTS]")
        record = PublishRecord(
            cell=cell.id,
            step="publish",
            finished=tools.now(),
            seconds=seconds(),
            digest=digest,
            registry=registry.host,
            repository=repository,
            tags=list(moved.tags),
            held=dict(moved.held),
            signed_with=expected.signed_with,
            referrers={title: str(content) for title, content in expected.referrers.items()},
            bytes_sent=sum(blob.bytes_sent for blob in pushed.blobs),
        )
        session.workspace.records.write(record)
        _write_log(session, record, pushed)
    return record


def push_by_digest(session: Session, built: BuildRecord, registry: Registry) -> PushedImage:
    """Bring the image of ``built`` to a registry, under no tag.

    Where the registry has it already, as a candidate that another machine pushed, nothing is sent
    and the image need not be here.

    Raises:
        RefusedError: ``LAYER_TOO_LARGE``, before anything is sent.
        CouldNotError: the registry did not do its part.
    """
    repository, digest = session.matrix.image, Digest(built.digest)
    layout = Layout(session.workspace.layout)
    if not layout.blob_path(digest).is_file():
        there = registry.head(repository, digest)
        if there is not None:
            return PushedImage(there, ())
    layers, limits = layout.manifest(digest).layers, session.facts.registry_limits
    problems = tuple(too_large(layers, registry.host, limits, where=built.cell))
    if problems:
        raise RefusedError(problems)
    on_bytes = _sending(session, built.cell, built.size)
    return registry.push_image(layout, digest, repository, on_bytes=on_bytes)


def _run(job: Job, terms: Terms) -> tuple[Attachment, ...]:
    if terms.sequence is None:
        return ()
    return (
        Attachment(
            RUN_RECORD,
            run_document(job, terms.sequence),
            RUN_RECORD,
            {SEQUENCE: str(terms.sequence)},
            title=f"run-{terms.sequence}.json",
        ),
    )


def _sending(session: Session, cell: str, size: int) -> Callable[[int], None]:
    # What the registry has is not sent again, so the image's size is no measure of what is left.
    tools, sent, doing = session.tools, 0, f"pushing layers of {size / 1e6:.1f} MB"

    def add(count: int) -> None:
        nonlocal sent
        tools.go_on()
        sent += count
        tools.progress.tell(Event(cell, "publish", "doing", doing, sent))

    return add


def _write_log(session: Session, record: PublishRecord, pushed: PushedImage) -> None:
    name = f"{record.registry}/{record.repository}"
    lines = [f"image {name}@{record.digest}"]
    if pushed.blobs:
        blobs = Layout(session.workspace.layout).manifest(Digest(record.digest)).blobs
        lines += [
            f"blob {blob.digest} {done.how}, {done.bytes_sent} bytes sent"
            for blob, done in zip(blobs, pushed.blobs, strict=True)
        ]
    lines += [f"referrer {title} {content}" for title, content in record.referrers.items()]
    lines += [f"signed by the key {record.signed_with}"] if record.signed_with else []
    lines += [f"tag {name}:{tag}" for tag in record.tags]
    lines += [f"left {name}:{tag}: {reason}" for tag, reason in record.held.items()]
    atomic_write(session.workspace.log(record.cell, "publish"), ("\n".join(lines) + "\n").encode())


def _evidence(
    session: Session, cell: Cell, digest: Digest, decision: Decision
) -> tuple[Attachment, ...]:
    folder = session.workspace.evidence(digest)
    wanted = [(FILES[kind], kind, folder / FILES[kind]) for kind in (SPDX_JSON, CYCLONEDX_JSON)]
    for level in (level for level in cell.policy.levels if level not in decision.waived):
        passed = [one.step for one in _tests(session, cell, digest, level) if one.verdict == "pass"]
        wanted += [(f"{step}.json", TEST_REPORT, folder / f"{step}.json") for step in passed]
    missing = [str(path) for _, _, path in wanted if not path.is_file()]
    if missing:
        raise RefusedError(
            Problem(
                code="EVIDENCE_MISSING",
                what=f"there is no {' and no '.join(missing)}",
                where=cell.id,
                fix=f"run `rocm-torch release {cell.id}`, which makes what is missing",
            )
        )
    return (
        *(Attachment(kind, path.read_bytes(), kind, title=title) for title, kind, path in wanted),
        *(_waiver(cell, digest, level) for level in decision.waived),
    )


def _waiver(cell: Cell, digest: Digest, level: str) -> Attachment:
    """Return what stands in the place of a report: who lets the level through, why, until when."""
    waiver = cell.policy.waiver
    document = {
        "schema": "rocm-torch/waiver/v1",
        "image": {"digest": digest, "cell": cell.id},
        "level": level,
        "reason": waiver.reason if waiver else "",
        "until": waiver.until.isoformat() if waiver else "",
    }
    content = canonical_json(document)
    return Attachment(WAIVER, content, WAIVER, title=f"waiver-{level}.json")


def _title(attachment: Attachment) -> str:
    return attachment.title or attachment.artifact_type


@dataclass(frozen=True, slots=True)
class _Expected:
    """What is to be in the registry: one image, all its tags, documents by title, and the key."""

    host: str
    repository: str
    digest: Digest
    tags: frozenset[str]
    referrers: Mapping[str, Digest]
    signed_with: str | None


def _holds(record: PublishRecord, registry: Registry, expected: _Expected) -> bool:
    """Tell whether a record is true of this registry today, asked of its narrowest facts."""
    told = _Expected(
        record.registry,
        record.repository,
        Digest(record.digest),
        frozenset((*record.tags, *record.held)),
        {title: Digest(content) for title, content in record.referrers.items()},
        record.signed_with,
    )
    if told != expected:
        return False
    heads = (registry.head(expected.repository, tag) for tag in record.tags)
    if not all(head is not None and head.digest == expected.digest for head in heads):
        return False
    found = registry.referrers(expected.repository, expected.digest)
    kinds = [referrer.artifact_type for referrer in found]
    signatures = kinds.count(SIGSTORE_BUNDLE)
    return (signatures > 0 or expected.signed_with is None) and (
        len(kinds) - signatures >= len(expected.referrers)
    )


def _check_readable(
    registry: Registry, repository: str, subject: Descriptor, referrer: Descriptor
) -> None:
    if registry.head(repository, referrer.digest) is None:
        raise CouldNotError(
            Problem(
                code="REFERRER_NOT_READABLE",
                what=f"{registry.host} lists a {referrer.artifact_type} and does not have it",
                where=f"{registry.host}/{repository}@{subject.digest}",
                fix="run the same command again",
            )
        )
