"""Step test of a SIF: the self-test under Apptainer, both ways of giving it the GPU, on every host.

Users convert our image and run it on machines whose homes and libraries we never see. What of them
reaches the image is made for real here, and what got through is named.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.engines import sif_probe
from builder.engines.docker_engine import RunResult
from builder.engines.places import HostPlace, Invocation, User
from builder.errors import CouldNotError, Problem
from builder.host.snapshot import read_snapshot
from builder.oci import Digest, canonical_json
from builder.pipeline.selftest import LEVEL_SECONDS, document_of
from builder.pipeline.sif import CELL_LABEL, IMAGE_LABEL, digest_of
from builder.pipeline.sif_host import Host, make_host
from builder.pipeline.tool_places import apptainer
from builder.report.apptainer_output import (
    ModeRun,
    bind_findings,
    loader_findings,
    mode_findings,
    probe_findings,
)
from builder.report.findings import Finding
from builder.report.progress import timed
from builder.report.records import TestRecord, Verdict, atomic_write
from builder.report.sif_report import CONDITIONS, MODES, Condition, Mode, SifReport, SifRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from builder.engines.apptainer import Apptainer
    from builder.engines.process import Completed
    from builder.host.snapshot import HostSnapshot
    from builder.pipeline.session import Session

STEP = "test-sif"
ORDINARY = 1000
_PROBE_SECONDS = 300.0
_CACHE = "/mnt"  # is in every image
_FATAL = "FATAL:"
_NOT_MADE = "a full file system can be made by the tools image only, not on this host"


@dataclass(frozen=True, slots=True)
class SifTest:
    """What to test, and how.

    Attributes:
        sif: the file.
        level: of the self-test.
        conditions: hosts to make; all by default.
        device_root: where the host's ``/dev`` is looked for.
    """

    sif: Path
    level: str = "smoke"
    conditions: tuple[Condition, ...] = CONDITIONS
    device_root: Path = Path("/")


@dataclass(frozen=True, slots=True)
class _Bench:
    """What all runs of one test share."""

    session: Session
    program: Apptainer
    test: SifTest
    cell: str
    python: str
    user: User
    snapshot: HostSnapshot

    @property
    def on_host(self) -> bool:
        return isinstance(self.program.place, HostPlace)


def sif_selftest(session: Session, test: SifTest) -> SifReport:
    """Run the self-test in a SIF, both ways and on every host, and keep report and record.

    Raises:
        CouldNotError: ``SIF_UNREADABLE``, ``SIF_FOREIGN``, or no Apptainer is to be had.
    """
    tools = session.tools
    program = apptainer(session)
    labels = _our_labels(program.labels(test.sif), test.sif)
    snapshot = read_snapshot(test.device_root)
    cell, digest = labels[CELL_LABEL], Digest(labels[IMAGE_LABEL])
    python = labels.get("io.rocm-torch.python", "3")
    bench = _Bench(session, program, test, cell, python, _user(snapshot), snapshot)
    with timed(tools.progress, cell, STEP, tools.clock, f"self-test in {test.sif}") as seconds:
        started = tools.now()
        runs = tuple(_runs(bench))
        file = digest_of(test.sif)[0]
        report = SifReport(test.sif, file, digest, cell, test.level, runs, _compared(runs))
        content = canonical_json(
            {
                **report.to_json(),
                "started": started.isoformat(timespec="seconds"),
                "host": {"kernel": snapshot.kernel, "apptainer": program.version()},
            }
        )
        atomic_write(session.workspace.evidence(digest) / f"{STEP}.json", content)
        session.workspace.records.write(_record(session, report, content, seconds()))
    return report


def _our_labels(labels: dict[str, str], sif: Path) -> dict[str, str]:
    missing = [name for name in (CELL_LABEL, IMAGE_LABEL) if not labels.get(name)]
    if missing:
        raise CouldNotError(
            Problem(
                code="SIF_FOREIGN",
                what=f"it has no label {' and no label '.join(missing)}",
                where=str(sif),
                fix="convert the image with `rocm-torch sif`",
            )
        )
    return labels


def _user(snapshot: HostSnapshot) -> User:
    """Return who runs the SIF: the caller, and an ordinary user in the place of root."""
    if os.getuid() != 0:
        return User(os.getuid(), os.getgid(), tuple(os.getgroups()))
    return User(ORDINARY, ORDINARY, tuple(sorted({node.gid for node in snapshot.compute_nodes})))


def _runs(bench: _Bench) -> Iterable[SifRun]:
    for condition in bench.test.conditions:
        for mode in MODES:
            bench.session.tools.go_on()
            run = _one(bench, mode, condition)
            told = run.verdict or f"not tried: {run.reason}"
            lines = (told, *(str(finding) for finding in run.findings))
            where = f"--rocm, {condition}" if mode == "rocm" else f"devices, {condition}"
            bench.session.tools.progress.say(bench.cell, STEP, f"{where}: {'; '.join(lines)}")
            yield run


def _one(bench: _Bench, mode: Mode, condition: Condition) -> SifRun:
    if condition == "cache-full" and bench.on_host:
        return SifRun(mode, condition, None, reason=_NOT_MADE)
    scratch = bench.session.workspace.state
    with tempfile.TemporaryDirectory(prefix="sif-host-", dir=scratch) as name:
        folder = Path(name)
        folder.chmod(0o755)
        host = make_host(condition, folder / "host", bench.python, bench.user)
        try:
            words = ("rocm-torch-selftest", "--level", bench.test.level, "--json")
            tested = _exec(bench, mode, host, words, LEVEL_SECONDS[bench.test.level])
            probed = _exec(bench, mode, host, ("python", "-c", _probe()), _PROBE_SECONDS)
        finally:
            host.home.chmod(0o700)
    return _judged(bench, mode, condition, tested, probed)


@cache
def _probe() -> str:
    return Path(sif_probe.__file__).read_text("utf-8")


def _exec(bench: _Bench, mode: Mode, host: Host, words: Sequence[str], timeout: float) -> Completed:
    nodes = tuple(node.source for node in bench.snapshot.nodes)
    binds = [f"--bind={node.source}:{node.path}" for node in bench.snapshot.nodes]
    if mode == "rocm":
        # Apptainer mounts the home of the user database, whatever HOME says.
        flags = ["--rocm", f"--home={host.home}"]
    else:
        flags = ["--containall", f"--workdir={host.work}", *binds]
        if host.cache:
            # Nothing of the home goes in; a site names the place, as our guide says.
            flags += [f"--bind={host.cache}:{_CACHE}", f"--env=ROCM_TORCH_CACHE_DIR={_CACHE}"]
    if bench.on_host and os.getuid() == 0:
        flags.append("--no-privs")
    call = Invocation(
        ("--quiet", "exec", *flags, str(bench.test.sif), *words),
        timeout,
        {"HOME": str(host.home), **host.environ},
        read=(bench.test.sif,),
        write=(host.home, host.work),
        devices=nodes,
        user=bench.user,
        full=(host.cache,) if host.full and host.cache else (),
    )
    return bench.program.run(call)


def _judged(
    bench: _Bench, mode: Mode, condition: Condition, tested: Completed, probed: Completed
) -> SifRun:
    text = tested.stderr + probed.stderr
    findings = [*bind_findings(text), *loader_findings(text)]
    try:
        findings += probe_findings(json.loads(probed.stdout))
    except (ValueError, KeyError, TypeError):
        if probed.returncode != 0 and not findings:
            findings += _probe_failed(probed)
    document: dict[str, Any] | None = None
    verdict: Verdict = "fail"
    try:
        result = RunResult(tested.returncode, tested.stdout, tested.stderr)
        document = document_of(bench.cell, result)
        verdict = document["summary"]["verdict"]
    except CouldNotError:
        findings += _silent(tested)
    return SifRun(mode, condition, verdict, tuple(dict.fromkeys(findings)), document)


def _silent(tested: Completed) -> tuple[Finding, ...]:
    return (
        Finding(
            code="SELFTEST_SILENT",
            severity="warn",
            summary=f"the self-test ended with {tested.returncode} and without a report:"
            f" {tested.tail(3)}",
            fix="run the same line by hand: apptainer exec SIF rocm-torch-selftest",
        ),
    )


def _probe_failed(probed: Completed) -> tuple[Finding, ...]:
    if _FATAL in probed.stderr:  # the container did not start: nothing of it is to blame
        return (
            Finding(
                code="APPTAINER_FAILED",
                severity="warn",
                summary=probed.tail(1),
                fix="see `apptainer --debug exec` with the same words",
            ),
        )
    return (
        Finding(
            code="PYTHON_BROKEN_BY_HOST",
            severity="error",
            summary=f"a plain `python` of the image does not work there: {probed.tail(1)}",
            fix="run with --containall, and set PYTHONNOUSERSITE=1",
        ),
    )


def _compared(runs: Sequence[SifRun]) -> tuple[Finding, ...]:
    """Return what only shows when both ways are compared on the clean host."""
    modes = []
    for run in runs:
        if run.condition == "plain" and run.verdict is not None:
            flags = ("--rocm",) if run.mode == "rocm" else ()
            modes.append(ModeRun(flags, None if run.verdict == "pass" else _failure(run)))
    return mode_findings(modes)


def _failure(run: SifRun) -> str:
    checks = (run.selftest or {}).get("checks", ())
    bad = [check["detail"] for check in checks if check["status"] in ("fail", "error")]
    return "; ".join(bad) or next((f.summary for f in run.findings), "the self-test did not pass")


def _record(session: Session, report: SifReport, content: bytes, seconds: float) -> TestRecord:
    tried = [run for run in report.runs if run.verdict is not None]
    return TestRecord(
        cell=report.cell,
        step=STEP,
        finished=session.tools.now(),
        seconds=seconds,
        digest=report.digest,
        level=report.level,
        verdict=report.verdict,
        passed=sum(run.verdict == "pass" for run in tried),
        failed=sum(run.verdict == "fail" for run in tried),
        skipped=len(report.runs) - len(tried),
        report=Digest.of(content),
    )
