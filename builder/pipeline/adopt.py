"""Takes over what was found out about a candidate on other machines, from its referrers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from builder.errors import Problem, RefusedError
from builder.oci import BUILD_RECORD, CYCLONEDX_JSON, SPDX_JSON, TEST_REPORT, Descriptor, Digest
from builder.pipeline.candidate import gone, untrue
from builder.pipeline.sbom import FILES
from builder.pipeline.selftest import report_path
from builder.plan.inputs import Inputs
from builder.plan.staleness import Built, build_reasons
from builder.report.records import BuildRecord, SbomRecord, TestRecord, atomic_write
from builder.report.sbom import packages
from builder.report.verification import check_report

if TYPE_CHECKING:
    from builder.engines.registry import Registry
    from builder.pipeline.candidate import Candidate
    from builder.pipeline.session import Job, Session


def adopt(session: Session, registry: Registry, one: Candidate) -> BuildRecord:
    """Write down here what was found out about a candidate elsewhere, as if it was done here.

    Raises:
        CouldNotError: the candidate or the record of its build is not in the registry.
        RefusedError: ``CANDIDATE_NOT_TRUE``, where a referrer is about another image or cell.
    """
    if registry.head(one.repository, one.digest) is None:
        raise gone(one)
    contents: dict[str, list[bytes]] = {}
    for referrer in registry.referrers(one.repository, one.digest):
        kind = str(referrer.artifact_type)
        if kind in (BUILD_RECORD, SPDX_JSON, CYCLONEDX_JSON, TEST_REPORT):
            contents.setdefault(kind, []).append(_content(registry, one, referrer))
    if BUILD_RECORD not in contents:
        raise gone(one, "no record of its build")
    try:
        found = [BuildRecord.model_validate_json(text) for text in contents[BUILD_RECORD]]
    except ValueError as error:
        raise untrue(one, "the record of its build cannot be read") from error
    built = max(found, key=lambda record: record.finished)
    if (built.cell, built.digest) != (one.cell, one.digest):
        raise untrue(one, f"the record of its build is about {built.cell}, {built.digest}")
    session.workspace.records.write(built)
    _adopt_sboms(session, one, built, contents)
    _adopt_reports(session, one, built, contents.get(TEST_REPORT, []))
    return built


def require_current(session: Session, job: Job, built: BuildRecord) -> None:
    """Raise unless a candidate was built from what this working copy has now.

    Raises:
        RefusedError: ``CANDIDATE_STALE``, with what differs.
    """
    then = Built(Inputs(tuple(sorted(built.inputs.items()))), built.sources, present=True)
    reasons = build_reasons(job.inputs, then, sources=session.sources(job.cell))
    if reasons:
        raise RefusedError(
            Problem(
                "CANDIDATE_STALE",
                f"the candidate was built from something else: {', '.join(reasons)}",
                where=job.cell.id,
                fix="publish from the commit that it was built from, or build it again",
            )
        )


def _content(registry: Registry, one: Candidate, referrer: Descriptor) -> bytes:
    _, raw = registry.get_manifest(one.repository, referrer.digest)
    artifact = json.loads(raw)
    if artifact.get("subject", {}).get("digest") != one.digest:
        raise untrue(one, f"the artifact {referrer.digest} says that it is about another image")
    blob = Descriptor.from_json(artifact["layers"][0])
    return b"".join(registry.get_blob(one.repository, blob))


def _adopt_sboms(
    session: Session, one: Candidate, built: BuildRecord, contents: dict[str, list[bytes]]
) -> None:
    if any(len(contents.get(kind, ())) != 1 for kind in FILES):
        return
    folder = session.workspace.evidence(one.digest)
    documents = {kind: contents[kind][0] for kind in FILES}
    for kind, content in documents.items():
        atomic_write(folder / FILES[kind], content)
    record = SbomRecord(
        cell=one.cell,
        step="sbom",
        finished=built.finished,
        seconds=0,
        digest=one.digest,
        documents={kind: Digest.of(content) for kind, content in documents.items()},
        packages=len(packages(json.loads(documents[SPDX_JSON]))),
        scanner="where it was built",
    )
    session.workspace.records.write(record)


def _adopt_reports(
    session: Session, one: Candidate, built: BuildRecord, reports: list[bytes]
) -> None:
    """Take the newest report of each level over; one that failed is not made good by an older."""
    newest: dict[str, tuple[str, bytes, dict[str, Any]]] = {}
    for content in reports:
        document = json.loads(content)
        level, started = document["selftest"]["level"], document["started"]
        if level not in newest or newest[level][0] < started:
            newest[level] = (started, content, document)
    for level, (_, content, document) in newest.items():
        summary = document["selftest"]["summary"]
        wrong = [
            check.detail
            for check in check_report(document, one.digest, one.cell)
            if check.state != "ok" and summary["verdict"] == "pass"
        ]
        if wrong:
            raise untrue(one, f"its test report of level {level}: {wrong[0]}")
        atomic_write(report_path(session, one.digest, level), content)
        session.workspace.records.write(
            TestRecord(
                cell=one.cell,
                step=f"test-{level}",
                finished=built.finished,
                seconds=0,
                digest=one.digest,
                level=level,
                verdict=summary["verdict"],
                passed=summary["passed"],
                failed=summary["failed"],
                skipped=summary["skipped"],
                report=Digest.of(content),
            )
        )
