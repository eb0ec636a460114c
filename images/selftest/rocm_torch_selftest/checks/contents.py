"""Check ``contents``: each component that the cell promises is in the image and can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocm_torch_selftest.checks.components import PROBES
from rocm_torch_selftest.context import NO_CELL, Context
from rocm_torch_selftest.outcome import ERROR, CheckFailedError, Outcome, not_applicable, passed
from rocm_torch_selftest.outcome import failed as failed_outcome

if TYPE_CHECKING:
    from typing import Mapping

    from rocm_torch_selftest.checks.components import Probe


def run(context: Context, probes: Mapping[str, Probe] = PROBES) -> Outcome:
    """Probe each promised component; all that are missing are named at once."""
    if context.cell is None:
        return not_applicable(NO_CELL)
    promised = context.cell.contents
    if not promised:
        return not_applicable("The cell promises no components.")
    unknown = [name for name in promised if name not in probes]
    if unknown:
        return Outcome(
            ERROR,
            f"The self-test has no probe for {', '.join(unknown)}; it knows {', '.join(probes)}.",
            {"unknown": unknown},
        )
    found: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name in promised:
        context.stage(name)
        try:
            found[name] = probes[name](context)
        except CheckFailedError as error:
            missing[name] = error.detail
    if missing:
        words = "; ".join(missing.values())
        return failed_outcome(f"Promised and not usable: {words}.", found=found, missing=missing)
    return passed(f"All {len(found)} promised components work: {', '.join(found)}.", found=found)
