"""What a check function is given, and how it reaches torch and other programs."""

from __future__ import annotations

import importlib
import subprocess
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

if TYPE_CHECKING:
    from pathlib import Path

    from rocm_torch_selftest.cell import Cell

NO_CELL = "This is not one of our images (no cell file), so nothing is promised to compare with."


@dataclass(frozen=True)
class Context:
    """What a check may use.

    Attributes:
        cell: what the image promises, or None outside an image.
        scratch: an empty directory for the files of this run.
        stage: call it with a few words before each step; when the process hangs or dies, the
            last words are named.
        options: of the level, where it has any; JSON values.
        device: ``cuda`` (torch's word for AMD's GPUs too), or ``cpu`` in a rehearsal: the code of
            the GPU checks then runs on the CPU, as far as it can.
    """

    cell: Cell | None
    scratch: Path
    stage: Callable[[str], None]
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cuda"


@dataclass(frozen=True)
class Ran:
    """A finished program: exit status (negative: the signal; None: not startable or too slow)."""

    status: int | None
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        """Return the last line that it said, on stderr or else on stdout."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1].strip() if lines else "it said nothing"


def run_program(
    argv: Sequence[str],
    *,
    limit_s: float = 30.0,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Ran:
    """Run a program and always return a status; it is ended after ``limit_s`` seconds.

    Its output goes to files, so that something it left running cannot keep a pipe open and make
    this wait; what it left running ends with the process group of the check.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            status = subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=None if environment is None else dict(environment),
                cwd=cwd,
                timeout=limit_s,
                check=False,
            ).returncode
        except OSError as error:
            return Ran(None, "", str(error))
        except subprocess.TimeoutExpired:
            return Ran(None, "", f"no end within {limit_s:g} s")
        out.seek(0)
        err.seek(0)
        return Ran(
            status, out.read().decode("utf-8", "replace"), err.read().decode("utf-8", "replace")
        )


def load_torch() -> Any:
    """Import torch; called only inside the process of a check."""
    return importlib.import_module("torch")


def backend_of(torch: Any) -> str:
    """Return which backend a torch was built for: ``hip``, ``cuda`` or ``cpu``."""
    if getattr(torch.version, "hip", None):
        return "hip"
    if getattr(torch.version, "cuda", None):
        return "cuda"
    return "cpu"
