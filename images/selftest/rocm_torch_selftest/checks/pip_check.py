"""Check ``pip-check``: ``pip check`` finds nothing that the base image itself did not have."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Sequence

from rocm_torch_selftest.context import NO_CELL, Context, Ran, run_program
from rocm_torch_selftest.outcome import failed, not_applicable, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.outcome import Outcome

CLEAN = "no broken requirements found"


def run(context: Context) -> Outcome:
    """Run ``pip check`` and compare its findings with the known ones."""
    if context.cell is None:
        return not_applicable(NO_CELL)
    context.stage("pip check")
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_COLOR": "1"}
    said = run_program([sys.executable, "-m", "pip", "check"], limit_s=50, environment=environment)
    return judge(said, context.cell.pip_check_known)


def normalised(finding: str) -> str:
    """Return a finding as it is compared: case, blanks and the last full stop do not count."""
    return " ".join(finding.lower().split()).rstrip(".")


def judge(said: Ran, known: Sequence[str]) -> Outcome:
    """Judge a run of ``pip check`` against the findings that the base has.

    A known finding that is gone is told and is no failure.
    """
    found = [line.strip() for line in said.stdout.splitlines() if line.strip()]
    clean = any(normalised(line) == CLEAN for line in found)
    found = [line for line in found if normalised(line) != CLEAN]
    if said.status != (1 if found else 0) or clean == bool(found):
        return failed(
            f"pip check gave no answer (exit status {said.status}): {said.last_line}",
            found=found,
        )
    known_forms = {normalised(line) for line in known}
    found_forms = {normalised(line) for line in found}
    new = [line for line in found if normalised(line) not in known_forms]
    gone = [line for line in known if normalised(line) not in found_forms]
    if new:
        return failed(f"pip check finds what the base did not have: {' '.join(new)}", new=new)
    words = f"{len(found)} findings, all known of the base" if found else "no findings"
    return passed(f"pip check: {words}.", found=found, known_and_gone=gone)
