"""What the test of a SIF found, run by run, and the verdict that follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from builder.oci import Digest
    from builder.report.findings import Finding
    from builder.report.records import Verdict

# With the host's ROCm libraries put in by Apptainer, or with the device nodes alone.
Mode = Literal["rocm", "devices"]
MODES: tuple[Mode, ...] = ("rocm", "devices")
# What the host does to the container; see builder/pipeline/sif_host.py.
Condition = Literal[
    "plain",
    "hostile-home",
    "host-library-path",
    "forced-library-path",
    "cache-read-only",
    "cache-full",
]
CONDITIONS: tuple[Condition, ...] = (
    "plain",
    "hostile-home",
    "host-library-path",
    "forced-library-path",
    "cache-read-only",
    "cache-full",
)
SCHEMA = "rocm-torch/sif-test/v1"


@dataclass(frozen=True, slots=True)
class SifRun:
    """One run: how, where, its verdict, and what of the host was seen.

    ``verdict`` is None where the condition could not be made here; ``reason`` says why.
    """

    mode: Mode
    condition: Condition
    verdict: Verdict | None
    findings: tuple[Finding, ...] = ()
    selftest: dict[str, Any] | None = None
    reason: str | None = None

    @property
    def explained(self) -> bool:
        """Tell whether something of the host that was named made the run fail."""
        return any(finding.severity == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "mode": self.mode,
            "condition": self.condition,
            "verdict": self.verdict,
            "reason": self.reason,
            "findings": [finding.to_json() for finding in self.findings],
            "selftest": self.selftest,
        }


@dataclass(frozen=True, slots=True)
class SifReport:
    """What the test of one SIF found."""

    sif: Path
    file: Digest
    digest: Digest
    cell: str
    level: str
    runs: tuple[SifRun, ...]
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """Return the verdict on the SIF.

        With the devices alone it must pass everywhere. A failure under ``--rocm`` is the host's
        where a library, package or bind of the host was named for it, and the image's elsewhere.
        """
        counting = [run for run in self.runs if run.verdict is not None]
        verdicts = {run.verdict for run in counting if run.mode == "devices" or not run.explained}
        if "fail" in verdicts:
            return "fail"
        if "incomplete" in verdicts or not verdicts:
            return "incomplete"
        return "pass"

    def to_json(self) -> dict[str, Any]:
        """Return the report, without time and host."""
        return {
            "schema": SCHEMA,
            "image": {
                "sif": str(self.sif),
                "file": self.file,
                "digest": self.digest,
                "cell": self.cell,
            },
            "level": self.level,
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            "runs": [run.to_json() for run in self.runs],
        }
