"""What one machine takes over from another is checked against the digest and the cell."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from registry_images import store_image
from registry_server import FakeRegistry, serving
from samples import CELL, project
from test_pipeline_steps import session as session_of

from builder.engines.registry import Attachment, Patience, Registry
from builder.errors import BadCallError, CouldNotError, RefusedError
from builder.oci import BUILD_RECORD, TEST_REPORT, Digest, canonical_json
from builder.pipeline.adopt import adopt, require_current
from builder.pipeline.candidate import Candidate, candidate_tag, read_candidates, to_text
from builder.report.records import BuildRecord, TestRecord

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.pipeline.session import Session

REPOSITORY = "ourorg/rocm-torch"


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with serving(FakeRegistry()) as running:
        yield running


@pytest.fixture
def registry(server: FakeRegistry) -> Iterator[Registry]:
    with Registry(server.host, patience=Patience(attempts=1)) as client:
        yield client


@pytest.fixture
def ours(tmp_path: Path) -> Session:
    return session_of(project(tmp_path / "copy"))


@pytest.fixture
def one(server: FakeRegistry) -> Candidate:
    digest = store_image(server, REPOSITORY)
    return Candidate(CELL.id, server.host, REPOSITORY, digest, "candidate-20261215-1-1-aa")


def record(one: Candidate, **changes: Any) -> bytes:
    values = {
        "cell": one.cell,
        "step": "build",
        "finished": datetime(2026, 12, 1, tzinfo=UTC),
        "seconds": 1.0,
        "digest": one.digest,
        "inputs": {"format": "0"},
        "size": 9,
    }
    return BuildRecord(**(values | changes)).model_dump_json(by_alias=True).encode()


def report(
    one: Candidate,
    *statuses: str,
    verdict: str = "pass",
    started: str = "2026-12-01T00:00:00+00:00",
    **changes: str,
) -> bytes:
    image = {"digest": one.digest, "cell": one.cell} | changes
    summary = {
        "passed": statuses.count("pass"),
        "failed": statuses.count("fail"),
        "skipped": statuses.count("skip"),
        "verdict": verdict,
    }
    selftest = {
        "cell": one.cell,
        "level": "gpu",
        "summary": summary,
        "checks": [{"id": str(n), "status": status} for n, status in enumerate(statuses)],
    }
    return canonical_json({"image": image, "started": started, "selftest": selftest})


def attach(registry: Registry, one: Candidate, **contents: bytes) -> None:
    kinds = {"build": BUILD_RECORD}
    subject = registry.get_manifest(one.repository, one.digest)[0]
    registry.attach_all(
        one.repository,
        subject,
        [
            Attachment(kind, content, kind, title=name)
            for name, content in contents.items()
            for kind in [kinds.get(name, TEST_REPORT)]
        ],
    )


def test_records_of_another_machine_count_here_as_well(
    registry: Registry, ours: Session, one: Candidate
) -> None:
    attach(registry, one, build=record(one), gpu=report(one, "pass"))
    assert adopt(ours, registry, one).digest == one.digest
    found = ours.workspace.records.read(TestRecord, one.cell, "test-gpu")
    assert found is not None
    assert (found.verdict, found.digest) == ("pass", one.digest)


def test_the_newest_report_of_a_level_counts(
    registry: Registry, ours: Session, one: Candidate
) -> None:
    later = "2026-12-02T00:00:00+00:00"
    attach(
        registry,
        one,
        build=record(one),
        first=report(one, "pass"),
        second=report(one, "fail", verdict="fail", started=later),
    )
    adopt(ours, registry, one)
    found = ours.workspace.records.read(TestRecord, one.cell, "test-gpu")
    assert found is not None
    assert found.verdict == "fail"


@pytest.mark.parametrize(
    "changes", [{"cell": "cpu-torch9.9.9-py313-debian13"}, {"digest": str(Digest.of(b"other"))}]
)
def test_a_record_about_something_else_is_refused(
    registry: Registry, ours: Session, one: Candidate, changes: dict[str, str]
) -> None:
    attach(registry, one, build=record(one, **changes))
    with pytest.raises(RefusedError, match="CANDIDATE_NOT_TRUE"):
        adopt(ours, registry, one)


def test_reports_that_contradict_themselves_are_refused(
    registry: Registry, ours: Session, one: Candidate
) -> None:
    attach(registry, one, build=record(one), gpu=report(one, "pass", "skip"))
    with pytest.raises(RefusedError, match="CANDIDATE_NOT_TRUE"):
        adopt(ours, registry, one)


def test_a_report_about_another_image_is_refused(
    registry: Registry, ours: Session, one: Candidate
) -> None:
    other = report(one, "pass", digest=str(Digest.of(b"other")))
    attach(registry, one, build=record(one), gpu=other)
    with pytest.raises(RefusedError, match="CANDIDATE_NOT_TRUE"):
        adopt(ours, registry, one)


def test_a_candidate_without_a_record_or_gone_is_told(
    registry: Registry, ours: Session, one: Candidate
) -> None:
    with pytest.raises(CouldNotError, match="no record of its build"):
        adopt(ours, registry, one)
    gone = Candidate(one.cell, one.registry, one.repository, Digest.of(b"gone"), one.tag)
    with pytest.raises(CouldNotError, match="CANDIDATE_GONE"):
        adopt(ours, registry, gone)


def test_a_candidate_of_other_inputs_is_stale_with_the_reason(
    registry: Registry, ours: Session, one: Candidate
) -> None:
    attach(registry, one, build=record(one))
    job = ours.job(ours.cell(one.cell))
    with pytest.raises(RefusedError, match=r"CANDIDATE_STALE|format version"):
        require_current(ours, job, adopt(ours, registry, one))
    same = BuildRecord.model_validate_json(record(one, inputs=dict(job.inputs.parts)))
    require_current(ours, job, same)


def test_lists_of_candidates_are_read_from_a_file_or_a_folder(
    tmp_path: Path, one: Candidate
) -> None:
    file = tmp_path / "a/candidate.json"
    file.parent.mkdir()
    file.write_text(to_text([one]), "utf-8")
    assert read_candidates(file) == read_candidates(tmp_path) == (one,)
    with pytest.raises(BadCallError, match="NO_CANDIDATES"):
        read_candidates(tmp_path / "none")
    for text in ("{}", "[", json.dumps({"schema": "rocm-torch/candidates/v1", "candidates": [1]})):
        file.write_text(text, "utf-8")
        with pytest.raises(RefusedError, match="CANDIDATES_DAMAGED"):
            read_candidates(file)


@pytest.mark.parametrize("run", ["", "-1", "a/b", "a b", "x" * 41, "$(id)"])
def test_the_id_of_a_run_must_fit_into_a_tag(run: str) -> None:
    with pytest.raises(BadCallError, match="BAD_RUN_ID"):
        candidate_tag(run, Digest.of(b"x"), datetime(2026, 12, 1, tzinfo=UTC).date())
