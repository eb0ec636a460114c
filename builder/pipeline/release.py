"""All steps for a selection of cells: build, test, SBOM, gate, publish, and tags in the engine.

Cells are independent: one that fails leaves the others going, and all failures are told at the end.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from builder.engines.docker_engine import DockerEngine
from builder.errors import Problem, RefusedError
from builder.host.run import RunRequest, plan_run
from builder.host.snapshot import read_snapshot
from builder.pipeline.build import build
from builder.pipeline.candidate import push_candidate
from builder.pipeline.chains import Chain, Task, run_chains
from builder.pipeline.publish import publish
from builder.pipeline.sbom import sbom
from builder.pipeline.scheduler import BUILD, PUBLISH, SBOM, TEST, TEST_ON_GPU, Slots
from builder.pipeline.selftest import candidate_name, load, remove_containers, run_selftest
from builder.plan.ci.chunks import GPU_LEVELS
from builder.report.progress import Event

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from builder.engines.registry import Registry
    from builder.errors import RocmTorchError
    from builder.pipeline.candidate import Candidate
    from builder.pipeline.chains import Failed
    from builder.pipeline.scheduler import Needs
    from builder.pipeline.session import Job, Session
    from builder.report.records import BuildRecord, PublishRecord, SbomRecord, TestRecord


@dataclass(slots=True)
class Outcome:
    """What a run did for one cell; a field is None where its step was not reached."""

    cell: str
    tags: tuple[str, ...] = ()
    build: BuildRecord | None = None
    tests: tuple[TestRecord, ...] = ()
    sbom: SbomRecord | None = None
    publish: PublishRecord | None = None
    error: RocmTorchError | None = None

    @property
    def verdict(self) -> str:
        """Return the worst verdict of the tests, or ``not tested``."""
        verdicts = {test.verdict for test in self.tests}
        for verdict in ("fail", "incomplete", "pass"):
            if verdict in verdicts:
                return verdict
        return "not tested"


@dataclass(frozen=True, slots=True)
class Options:
    """How a run goes.

    Attributes:
        registry: where to publish.
        workers: steps at a time that keep a core busy.
        fresh: repeat finished steps.
        device_root: where the host's ``/dev`` is looked for.
        builder: name of a buildx builder; the engine's own where it is None.
    """

    registry: Registry
    workers: int
    fresh: bool
    device_root: Path
    builder: str | None = None


def release(session: Session, jobs: Sequence[Job], options: Options) -> tuple[Outcome, ...]:
    """Take every job through all steps and return what happened, in the order of ``jobs``."""
    outcomes = {job.cell.id: Outcome(job.cell.id) for job in jobs}
    engine = DockerEngine()
    local = engine.tags(session.matrix.image)
    needs = test_needs(options.device_root)
    chains = tuple(
        _chain(session, job, outcomes[job.cell.id], options, _Local(engine, local), needs)
        for job in jobs
    )

    def failed(cell: str, step: str, error: RocmTorchError) -> None:
        outcomes[cell].error = told_failure(session, cell, step, error)

    run(session, chains, options.workers, failed)
    return tuple(outcomes.values())


@dataclass(frozen=True, slots=True)
class CandidateOptions:
    """How candidates are made: where they go, which run makes them, with how many workers."""

    registry: Registry
    run: str
    workers: int
    builder: str | None = None


def candidates(
    session: Session, jobs: Sequence[Job], options: CandidateOptions
) -> tuple[tuple[Candidate, ...], tuple[RocmTorchError, ...]]:
    """Build jobs, run the tests that need no GPU, describe, and push to a registry.

    Returns:
        The candidates, in the order of ``jobs``, and what failed. A failed test pushes nothing;
        one that is incomplete does not keep a candidate back.
    """
    done: dict[str, Candidate] = {}
    errors: list[RocmTorchError] = []

    def building(job: Job) -> None:
        build(session, job, builder=options.builder)

    def testing(job: Job, level: str) -> None:
        record = run_selftest(session, _last_build(session, job), level)
        if record.verdict == "fail":
            what = f"level {level} of the self-test failed"
            raise RefusedError(Problem("TEST_FAIL", what, where=job.cell.id))

    def describing(job: Job) -> None:
        sbom(session, job, _last_build(session, job))

    def pushing(job: Job) -> None:
        done[job.cell.id] = push_candidate(session, job, options.registry, options.run)

    def failed(cell: str, step: str, error: RocmTorchError) -> None:
        errors.append(told_failure(session, cell, step, error))

    chains = [
        Chain(
            job.cell.id,
            (
                Task("build", BUILD, partial(building, job)),
                *(
                    Task(f"test-{level}", TEST, partial(testing, job, level))
                    for level in job.cell.policy.levels
                    if level not in GPU_LEVELS
                ),
                Task("sbom", SBOM, partial(describing, job)),
                Task("candidate", PUBLISH, partial(pushing, job)),
            ),
        )
        for job in jobs
    ]
    run(session, chains, options.workers, failed)
    return tuple(done[job.cell.id] for job in jobs if job.cell.id in done), tuple(errors)


def _last_build(session: Session, job: Job) -> BuildRecord:
    built = session.built(job.cell)
    if built is None:  # pragma: no cover - a chain ends with the step that failed
        raise AssertionError(f"{job.cell.id} is not built")
    return built


def run(session: Session, chains: Sequence[Chain], workers: int, failed: Failed) -> None:
    """Run chains on this machine's slots; Ctrl-C takes the containers of this working copy away."""
    slots = Slots.of(len(os.sched_getaffinity(0)), workers)
    sweep = partial(remove_containers, session)
    run_chains(chains, slots, session.tools, failed=failed, sweep=sweep)


def told_failure(session: Session, cell: str, step: str, error: RocmTorchError) -> RocmTorchError:
    """Say that a step failed, and return its error with the path of its log where there is one."""
    log = session.workspace.log(cell, step)
    if log.is_file() and str(log) not in str(error):
        problems = (
            replace(problem, fix=f"{problem.fix}; log: {log}" if problem.fix else f"log: {log}")
            for problem in error.problems
        )
        error = type(error)(problems)
    session.tools.progress.tell(Event(cell, step, "failed", str(error)))
    return error


def test_needs(device_root: Path) -> Needs:
    """Return what a test occupies here: the GPU where one is passed in, else a core."""
    return TEST_ON_GPU if plan_run(read_snapshot(device_root), RunRequest("")).has_gpu else TEST


@dataclass(frozen=True, slots=True)
class _Local:
    """The local engine, and the ids of the image's tags in it when the run began."""

    engine: DockerEngine
    tags: Mapping[str, str]


def _chain(
    session: Session,
    job: Job,
    outcome: Outcome,
    options: Options,
    local: _Local,
    needs: Needs,
) -> Chain:
    fresh = options.fresh

    def building() -> None:
        outcome.build = build(session, job, force=fresh, builder=options.builder)

    def testing(level: str) -> None:
        root = options.device_root
        record = run_selftest(session, _built(outcome), level, force=fresh, device_root=root)
        outcome.tests = (*outcome.tests, record)

    def describing() -> None:
        outcome.sbom = sbom(session, job, _built(outcome), force=fresh)

    def publishing() -> None:
        built = _built(outcome)
        outcome.publish = publish(session, job, built, registry=options.registry, force=fresh)
        outcome.tags = tuple(outcome.publish.tags)
        tag_locally(session, built, outcome.tags, local.engine, local.tags)

    tests = (
        Task(f"test-{level}", needs, partial(testing, level)) for level in job.cell.policy.levels
    )
    return Chain(
        job.cell.id,
        (
            Task("build", BUILD, building),
            *tests,
            Task("sbom", SBOM, describing),
            Task("publish", PUBLISH, publishing),
        ),
    )


def _built(outcome: Outcome) -> BuildRecord:
    if outcome.build is None:  # pragma: no cover - a chain ends with the step that failed
        raise AssertionError(f"{outcome.cell} is not built")
    return outcome.build


def tag_locally(
    session: Session,
    built: BuildRecord,
    tags: Sequence[str],
    engine: DockerEngine,
    present: Mapping[str, str],
) -> None:
    """Give the image its release tags in the local engine, and take its candidate name away.

    ``present`` is what the engine had by full name when the run began, so that a run in which
    nothing changed asks once and not for each tag.
    """
    image = session.matrix.image
    if all(present.get(f"{image}:{tag}") == built.digest for tag in tags):
        return
    load(session, engine, built)
    engine.tag(built.digest, image, tags)
    engine.remove_tag(candidate_name(session, built.cell))
