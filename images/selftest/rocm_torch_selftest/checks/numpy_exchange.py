"""Check ``numpy``: tensors and arrays are exchanged, without a word about another binary interface.

torch that was built for another NumPy only warns at import; the conversion fails later.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

from rocm_torch_selftest.context import Context, Ran, run_program
from rocm_torch_selftest.outcome import failed, not_applicable, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.outcome import Outcome

SIGNS = ("_ARRAY_API not found", "compiled using NumPy 1.x", "Failed to initialize NumPy")
_EXCHANGE = """
import warnings, numpy, torch
with warnings.catch_warnings():
    warnings.simplefilter("error")
    array = numpy.arange(6, dtype="float32").reshape(2, 3)
    back = (torch.from_numpy(array) * 2).numpy()
    assert back.tolist() == [[0, 2, 4], [6, 8, 10]], back.tolist()
    assert numpy.asarray(torch.ones(3)).sum() == 3
print(torch.__version__, numpy.__version__)
"""


def run(context: Context) -> Outcome:
    """Exchange an array in a fresh process, whose words at import count as well."""
    if importlib.util.find_spec("numpy") is None:
        return not_applicable("NumPy is not installed here.")
    context.stage("exchange an array with NumPy")
    return judge(run_program([sys.executable, "-c", _EXCHANGE], limit_s=100))


def judge(said: Ran) -> Outcome:
    """Judge what the process said: a sign of another interface fails, whatever the status."""
    sign = next((sign for sign in SIGNS if sign in said.stderr), None)
    if sign is not None:
        return failed(f'torch was built for another NumPy: "{sign}" [NUMPY_ABI].', code="NUMPY_ABI")
    if said.status != 0:
        return failed(f"An array does not survive torch: {said.last_line}.")
    torch, numpy = said.stdout.split()[-2:]
    return passed(f"torch {torch} and NumPy {numpy} exchange arrays.", numpy=numpy)
