"""What a rule says, and what all rules together say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Union

    from builder.host.rules.facts import HostFacts
    from builder.host.snapshot.model import HostSnapshot

    Rule = Callable[
        [HostSnapshot, HostFacts], Union["Finding", Iterable["Finding"], None]  # noqa: UP007
    ]

# Worst first.
SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """One thing that a rule found.

    Attributes:
        code: stable upper-case identifier.
        severity: ``error``: the GPU cannot be used as it stands; ``warning``: it can, and
            something will surprise; ``info``: a note.
        summary: one or two sentences with the values that were read.
        evidence: the lines that show it.
        fix: an exact command or setting; ``""`` where there is nothing to do.
        source: where the rule's knowledge was read.
        explains: codes that follow from this one and need no work of their own.
        follows_from: the code that explains this one, filled in by ``diagnose``.
    """

    code: str
    severity: str
    summary: str
    evidence: tuple[str, ...] = ()
    fix: str = ""
    source: str = ""
    explains: tuple[str, ...] = ()
    follows_from: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the finding in the shape of ``rocm-torch/doctor/v1``."""
        return {
            "code": self.code,
            "severity": self.severity,
            "summary": self.summary,
            "evidence": list(self.evidence),
            "fix": self.fix or None,
            "source": self.source or None,
            "follows_from": self.follows_from or None,
        }


@dataclass(frozen=True)
class Diagnosis:
    """All findings, the cause first, each followed by what it explains.

    Attributes:
        verdict: ``fail`` where an error was found, ``incomplete`` where there is no GPU to judge,
            else ``pass``.
        findings: in the order in which to read them.
    """

    verdict: str
    findings: tuple[Finding, ...] = ()

    @property
    def cause(self) -> Finding | None:
        """Return the finding to begin with: the first error, or else the first of all."""
        return self.findings[0] if self.findings else None

    def has(self, code: str) -> bool:
        """Tell whether a rule found this."""
        return any(finding.code == code for finding in self.findings)
