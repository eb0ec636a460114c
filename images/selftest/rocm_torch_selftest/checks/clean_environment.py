"""Check ``clean-environment``: torch imports although the image's environment variables are gone.

That is what sudo, cron, ssh and ``apptainer exec --cleanenv`` leave: libraries that are found
through LD_LIBRARY_PATH alone are lost there.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rocm_torch_selftest.context import Context, Ran, run_program
from rocm_torch_selftest.outcome import failed, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.outcome import Outcome

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(context: Context) -> Outcome:
    """Import torch with nothing but a PATH; the check ``import`` does it with all variables."""
    context.stage("import torch without the environment")
    argv = [sys.executable, "-c", "import torch; print(torch.__version__)"]
    return judge(run_program(argv, limit_s=100, environment={"PATH": _PATH}, cwd=context.scratch))


def judge(said: Ran) -> Outcome:
    """Judge the import that was tried without variables."""
    if said.status == 0:
        return passed(f"torch {said.stdout.strip()} imports without any variable but PATH.")
    return failed(
        "torch imports in the image's environment only, and without its variables it says:"
        f" {said.last_line} [NEEDS_LD_LIBRARY_PATH].",
        code="NEEDS_LD_LIBRARY_PATH",
    )
