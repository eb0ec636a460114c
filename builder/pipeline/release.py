"""All steps for a selection of cells: build, test, SBOM, gate, publish, and tags in the engine.

Cells are independent: one that fails leaves the others going, and all failures are told at the end.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from builder.engines.docker_engine import DockerEngine
from builder.errors import RocmTorchError
from builder.oci import Digest
from builder.pipeline.build import build
from builder.pipeline.publish import publish, release_tags
from builder.pipeline.sbom import sbom
from builder.pipeline.selftest import candidate_name, load, run_selftest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from builder.engines.registry import Registry
    from builder.pipeline.session import Job, Session
    from builder.report.records import BuildRecord, PublishRecord, SbomRecord, TestRecord

Result = TypeVar("Result")


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
        workers: cells at a time.
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

    def one(job: Job) -> Outcome:
        outcome = Outcome(job.cell.id)
        try:
            _steps(session, job, outcome, options)
        except RocmTorchError as error:
            outcome.error = error
            session.tools.progress.say(job.cell.id, "failed", str(error))
        return outcome

    return run_cells(jobs, one, options.workers, stop=session.tools.runner.end_all)


def run_cells(
    jobs: Sequence[Job], one: Callable[[Job], Result], workers: int, *, stop: Callable[[], None]
) -> tuple[Result, ...]:
    """Run ``one`` for each job, ``workers`` at a time, and keep the order of ``jobs``.

    Where it ends early, on Ctrl-C, ``stop`` is called: the jobs that run are waited for.
    """
    with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
        try:
            return tuple(pool.map(one, jobs))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
            raise


def _steps(session: Session, job: Job, outcome: Outcome, options: Options) -> None:
    fresh = options.fresh
    built = outcome.build = build(session, job, force=fresh, builder=options.builder)
    outcome.tests = tuple(
        run_selftest(session, built, level, force=fresh, device_root=options.device_root)
        for level in job.cell.policy.levels
    )
    outcome.sbom = sbom(session, job, built, force=fresh)
    outcome.publish = publish(session, job, built, registry=options.registry, force=fresh)
    outcome.tags = release_tags(session, job, Digest(built.digest))
    tag_locally(session, built, outcome.tags)


def tag_locally(session: Session, built: BuildRecord, tags: Sequence[str]) -> None:
    """Give the image its release tags in the local engine, and take its candidate name away."""
    engine, image = DockerEngine(), session.matrix.image
    if all(engine.image_id(f"{image}:{tag}") == built.digest for tag in tags):
        return
    load(session, engine, built)
    engine.tag(built.digest, image, tags)
    engine.remove_tag(candidate_name(session, built.cell))
