"""Check ``import``: torch imports, in a process that did nothing before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rocm_torch_selftest.context import Context, load_torch
from rocm_torch_selftest.outcome import passed

if TYPE_CHECKING:
    from rocm_torch_selftest.outcome import Outcome


def run(context: Context) -> Outcome:
    """Import torch and record how long that took."""
    context.stage("import torch")
    started = time.monotonic()
    torch = load_torch()
    seconds = time.monotonic() - started
    return passed(
        f"torch {torch.__version__} imported in {seconds:.2f} s.",
        import_seconds=round(seconds, 3),
        file=str(torch.__file__),
    )
