"""Step test: the self-test in a container of the built image, with the host's GPU passed in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.engines.docker_engine import DockerEngine
from builder.engines.layout import Layout
from builder.errors import CouldNotError, Problem
from builder.oci import Digest, Reference, canonical_json
from builder.pipeline.executor import Ran, TestTask, step_name
from builder.pipeline.this_host import plan_test, see_host, spec_of
from builder.report.junit import junit
from builder.report.progress import Event, timed
from builder.report.records import TestRecord, atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.engines.docker_engine import RunResult
    from builder.host.snapshot import HostSnapshot
    from builder.pipeline.candidate import Candidate
    from builder.pipeline.executor import Executor
    from builder.pipeline.session import Session
    from builder.report.records import BuildRecord

REPORT_SCHEMA = "rocm-torch/test-report/v1"
SELFTEST_SCHEMA = "rocm-torch/selftest/v1"
# The self-test ends each of its checks by itself; this only catches one that does not.
LEVEL_SECONDS = {"smoke": 900.0, "gpu": 3600.0, "bench": 7200.0}


def run_selftest(
    session: Session,
    built: BuildRecord,
    level: str,
    *,
    force: bool = False,
    device_root: Path = Path("/"),
) -> TestRecord:
    """Run one level of the self-test in the image of ``built``, unless it was done for its digest.

    Args:
        session: the run.
        built: the build whose image is tested.
        level: ``smoke``, ``gpu`` or ``bench``.
        force: test again.
        device_root: where the host's ``/dev`` is looked for.

    Raises:
        CouldNotError: the engine failed, or the self-test said nothing that can be read.
    """
    return run_task(session, TestTask(built, level), LocalExecutor(device_root), force=force)


def run_task(
    session: Session, task: TestTask, executor: Executor, *, force: bool = False
) -> TestRecord:
    """Run one test where ``executor`` does, unless it was done; see :func:`run_selftest`."""
    tools, workspace, built = session.tools, session.workspace, task.built
    cell, step = built.cell, task.step
    record = workspace.records.read(TestRecord, cell, step)
    if record and not force and record.digest == built.digest and record.verdict == "pass":
        tools.progress.tell(Event(cell, step, "done", f"{record.verdict} (done before)"))
        return record
    doing = f"self-test, level {task.level}"
    with timed(tools.progress, cell, step, tools.clock, doing) as seconds:
        started = tools.now()
        ran = executor.run(session, task)
        tools.go_on()  # a test that was ended for that says nothing that counts
        _write_log(session, task, ran.result)
        document = document_of(cell, ran.result)
        report = {
            "schema": REPORT_SCHEMA,
            "image": {"ref": session.matrix.image, "digest": built.digest, "cell": cell},
            "host": ran.host,
            "started": started.isoformat(timespec="seconds"),
            "selftest": document,
        }
        content = canonical_json(report)
        path = workspace.evidence(Digest(built.digest)) / f"{step}.json"
        atomic_write(path, content)
        atomic_write(path.with_suffix(".junit.xml"), junit(report))
        summary = document["summary"]
        record = TestRecord(
            cell=cell,
            step=step,
            finished=tools.now(),
            seconds=seconds(),
            digest=built.digest,
            level=task.level,
            verdict=summary["verdict"],
            passed=summary["passed"],
            failed=summary["failed"],
            skipped=summary["skipped"],
            report=Digest.of(content),
        )
        workspace.records.write(record)
        tools.progress.say(cell, step, told(document))
    return record


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """Runs tests in containers of the engine, with the GPU nodes below ``device_root``."""

    device_root: Path = Path("/")

    def run(self, session: Session, task: TestTask) -> Ran:
        """Run one test in a container."""
        engine, labels = DockerEngine(), _labels(session, task.built)
        engine.remove_leftovers(f"{key}={value}" for key, value in labels.items())
        load(session, engine, task.built)
        snapshot = see_host(self.device_root, session.tools.runner, ("docker",))
        command = ("rocm-torch-selftest", "--level", task.level, "--json")
        plan = plan_test(snapshot, task.built.digest, command)
        for note in plan.notes:
            session.tools.progress.say(task.built.cell, task.step, f"{note.code}: {note.what}")
        result = engine.run(spec_of(plan, LEVEL_SECONDS[task.level], labels.items()))
        return Ran(result, _host(engine, snapshot))

    def stop(self, session: Session, /) -> int:
        """Remove the containers of tests."""
        return remove_containers(session)


def report_path(session: Session, digest: Digest, level: str) -> Path:
    """Return where the report about one image and level lies."""
    return session.workspace.evidence(digest) / f"{step_name(level)}.json"


def candidate_name(session: Session, cell: str) -> str:
    """Return the local name of an image that has no release tag yet."""
    return f"{session.matrix.image}:candidate-{cell}"


def load(session: Session, engine: DockerEngine, built: BuildRecord) -> None:
    """Bring the image of ``built`` into the engine under its candidate name, where it is not."""
    name = candidate_name(session, built.cell)
    if engine.image_id(name) == built.digest:
        return
    if engine.has_image(built.digest):
        repository, _, tag = name.partition(":")
        engine.tag(built.digest, repository, (tag,))
        return
    digest = Digest(built.digest)
    # The engine takes a name in an archive as it stands, and looks for names in full.
    archive = Layout(session.workspace.layout).stream_tar(digest, str(Reference.parse(name)))
    engine.load(_stoppable(session, archive), digest, name)


def fetch(session: Session, one: Candidate) -> None:
    """Bring a candidate into the engine by its digest, from the registry it lies in."""
    engine = DockerEngine()
    if not engine.has_image(one.digest):
        session.tools.progress.say(one.cell, "fetch", f"{one.registry}/{one.repository}")
        engine.pull(f"{one.registry}/{one.repository}", one.digest)


def _stoppable(session: Session, pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        session.tools.go_on()
        yield piece


def told(document: dict[str, Any]) -> str:
    """Return one line about a self-test, with what did not pass."""
    summary = document["summary"]
    bad = [
        f"{check['id']}: {check['status']} ({check['detail']})"
        for check in document["checks"]
        if check["status"] not in ("pass", "not_applicable")
    ]
    counts = f"{summary['passed']} passed, {summary['failed']} failed, {summary['skipped']} skipped"
    return "; ".join([f"{summary['verdict']}: {counts}", *bad])


def document_of(cell: str, result: RunResult) -> dict[str, Any]:
    """Return what a self-test of ``cell`` printed; its exit status and verdict must agree.

    Raises:
        CouldNotError: ``SELFTEST_SILENT``, where it printed no report about that cell.
    """
    try:
        document: dict[str, Any] = json.loads(result.stdout)
        if document["schema"] != SELFTEST_SCHEMA or not document["checks"]:
            raise ValueError("it is no report of ours, or nothing ran")
        if document["cell"] != cell:
            raise ValueError(f"it is about the cell {document['cell']!r}")
        verdict = document["summary"]["verdict"]
    except (ValueError, KeyError, TypeError) as error:
        raise CouldNotError(
            Problem(
                code="SELFTEST_SILENT",
                what=f"the self-test ended with status {result.exit_code} and without a report",
                where=cell,
                why=(result.stderr or result.stdout).strip()[-2000:] or str(error),
            )
        ) from error
    if (verdict == "pass") != (result.exit_code == 0):
        # Whatever disagrees, the worse of the two counts.
        document["summary"]["verdict"] = "fail"
        document["summary"]["exit_code"] = result.exit_code
    return document


def _write_log(session: Session, task: TestTask, result: RunResult) -> None:
    log = session.workspace.log(task.built.cell, task.step)
    text = f"exit status {result.exit_code}\n-- stdout\n{result.stdout}\n-- stderr\n{result.stderr}"
    atomic_write(log, text.encode())


def _labels(session: Session, built: BuildRecord) -> dict[str, str]:
    """Return what marks the containers of this step, so that a later run finds a killed one's."""
    return {"io.rocm-torch.test": built.cell, **workspace_label(session)}


def workspace_label(session: Session) -> dict[str, str]:
    """Return what marks all containers that runs in this working copy start for tests."""
    return {"io.rocm-torch.workspace": str(session.workspace.root)}


def remove_containers(session: Session) -> int:
    """Remove the test containers of this working copy, running or not, and return how many."""
    labels = workspace_label(session)
    return DockerEngine().remove_leftovers(f"{key}={value}" for key, value in labels.items())


def _host(engine: DockerEngine, snapshot: HostSnapshot) -> dict[str, Any]:
    info = engine.info()
    return {
        "kernel": snapshot.kernel,
        "machine": snapshot.machine,
        "operating_system": info.operating_system,
        "engine": info.version,
        "devices": [
            {"path": node.path, "gid": node.gid, "mode": f"{node.mode:04o}"}
            for node in snapshot.nodes
        ],
    }
