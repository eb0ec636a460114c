"""The verdict on a SIF: what is the host's fault and what is the image's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builder.oci import Digest
from builder.report.findings import Finding
from builder.report.sif_report import Condition, Mode, SifReport, SifRun

if TYPE_CHECKING:
    from builder.report.records import Verdict

BROKEN = Finding("APPTAINER_HOST_LIB", "error", "a library of the host", "leave --rocm out")
NOTE = Finding("CACHE_NOT_WRITABLE", "note", "elsewhere", "")


def run(
    mode: Mode,
    verdict: Verdict | None,
    *findings: Finding,
    condition: Condition = "plain",
) -> SifRun:
    return SifRun(mode, condition, verdict, findings)


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [
        ([run("rocm", "pass"), run("devices", "pass")], "pass"),
        ([run("rocm", "fail", BROKEN), run("devices", "pass")], "pass"),
        ([run("rocm", "fail"), run("devices", "pass")], "fail"),
        ([run("rocm", "fail", NOTE), run("devices", "pass")], "fail"),
        ([run("rocm", "pass"), run("devices", "fail", BROKEN)], "fail"),
        ([run("rocm", "incomplete"), run("devices", "incomplete")], "incomplete"),
        ([run("rocm", "pass"), run("devices", None)], "pass"),
        ([run("rocm", "fail", BROKEN), run("devices", None)], "incomplete"),
        ([run("rocm", None), run("devices", None)], "incomplete"),
    ],
)
def test_with_the_devices_alone_it_must_pass_and_rocm_may_fail_where_the_host_was_named(
    runs: list[SifRun], verdict: str
) -> None:
    digest = Digest.of(b"")
    report = SifReport(Path("x.sif"), digest, digest, "cell", "smoke", tuple(runs), ())
    assert report.verdict == verdict
