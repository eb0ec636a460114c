"""Checks that are planted into the self-test's own runner, and a torch that plays faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocm_torch_selftest.runner import Setting, run_together
from rocm_torch_selftest.table import Check

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from rocm_torch_selftest.outcome import Result

HEADER = """
import atexit, os, signal, subprocess, sys, warnings
from rocm_torch_selftest.outcome import CheckFailedError, passed
"""
# A torch for AMD on a machine with a GPU node, as far as the checks can see; {body} is the rest.
STAND_IN_TORCH = """
import os, signal
import rocm_torch_selftest.checks.gpu as gpu
gpu.KFD = "dev/null"  # a node that is there and opens
__version__ = "9.9.9"
class version: hip = "6.2.41133"; cuda = None
class cuda:
    @staticmethod
    def device_count(): return 0
    @staticmethod
    def is_available(): {body}
"""


def plant(folder: Path, monkeypatch: pytest.MonkeyPatch, functions: str) -> Setting:
    """Lay a package ``planted.faults`` with these functions where checks are imported from."""
    package = folder / "planted"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "faults.py").write_text(HEADER + functions)
    (folder / "scratch").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return Setting(None, folder / "scratch")


def outcome(setting: Setting, name: str = "check", *, limit_s: float = 60.0) -> Result:
    """Run one planted function as a check of level gpu."""
    row = Check(name, "gpu", f"planted.faults:{name}", "a planted fault", limit_s=limit_s)
    return run_together([row], setting)[name]


def stand_in_torch(folder: Path, body: str) -> Path:
    """Lay a package that is called torch, whose availability check does what is asked."""
    package = folder / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(STAND_IN_TORCH.format(body=body))
    return folder
