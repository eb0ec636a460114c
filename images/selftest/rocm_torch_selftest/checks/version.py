"""Check ``version``: torch, its backend, HIP and Python are what the cell's facts say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocm_torch_selftest.checks.environment import python_version
from rocm_torch_selftest.context import NO_CELL, Context, backend_of, load_torch
from rocm_torch_selftest.outcome import failed, not_applicable, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.cell import Cell
    from rocm_torch_selftest.outcome import Outcome


def run(context: Context) -> Outcome:
    """Compare what torch and Python say with what the cell expects."""
    context.stage("import torch")
    torch = load_torch()
    found = {
        "torch": str(torch.__version__),
        "backend": backend_of(torch),
        "hip": getattr(torch.version, "hip", None),
        "python": python_version(),
    }
    if context.cell is None:
        return not_applicable(NO_CELL, found=found)
    return compare(context.cell, found)


def compare(cell: Cell, found: dict[str, str | None]) -> Outcome:
    """Compare the versions that were found with the cell's; each difference is named.

    A torch that the cell expects without a local version (``+...``) may have any; HIP's version
    is expected as far as it is written, because its last part is a build number.
    """
    expected = {"torch": cell.torch_version, "backend": cell.backend, "python": cell.python}
    if cell.hip_version is not None:
        expected["hip"] = cell.hip_version
    wrong = [
        f"{name} is {found.get(name)!r} and the cell expects {value!r}"
        for name, value in expected.items()
        if not _is(name, found.get(name), value)
    ]
    if wrong:
        return failed("; ".join(wrong) + ".", found=found, expected=expected)
    words = ", ".join(f"{name} {value}" for name, value in expected.items())
    return passed(f"As the cell expects: {words}.", found=found, expected=expected)


def _is(name: str, found: str | None, expected: str) -> bool:
    if found is None:
        return False
    if name == "torch" and "+" not in expected:
        return found.partition("+")[0] == expected.partition("+")[0]
    if name == "hip":
        return f"{found}.".startswith(f"{expected}.") or found.startswith(f"{expected}-")
    return found == expected
