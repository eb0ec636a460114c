"""The command ``rocm-torch-selftest``: read the call, run the level, print one document."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator, NoReturn, Sequence

from rocm_torch_selftest.bench.request import Request, add_options, request_of
from rocm_torch_selftest.cell import CELL_FILE, CELL_FILE_VARIABLE, CellFileError, read_cell
from rocm_torch_selftest.child import write_atomically
from rocm_torch_selftest.human import check_lines, report_lines
from rocm_torch_selftest.runner import Setting
from rocm_torch_selftest.session import Run, run_level
from rocm_torch_selftest.table import BENCH, CHECKS, LEVELS, SMOKE, Check, checks_of
from rocm_torch_selftest.verdict import EXIT_CODES

BROKE = 1
BAD_CALL = 64

_EPILOG = """\
exit status: 0 pass, 2 fail, 3 incomplete (a required check could not be tried), 1 the self-test
itself could not do its work, 64 bad call

example:
  rocm-torch-selftest --level smoke
  docker run --rm --device /dev/kfd --device /dev/dri --group-add "$(stat -c %g /dev/kfd)" \\
      IMAGE rocm-torch-selftest --level gpu --json
  rocm-torch-selftest arch --target gfx1100       (without a GPU; see arch --help)
  rocm-torch-selftest --level bench --subset resnet50,gemm --output bench.json
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report a bad call with an exit status that is not the one of a failed test."""
        self.print_usage(sys.stderr)
        self.exit(BAD_CALL, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = _Parser(
        prog="rocm-torch-selftest",
        description="Test the torch of this image: that it is whole (smoke) and that it computes "
        "right on the GPU (gpu), and how fast (bench).",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--level", choices=LEVELS, help=f"what to test (default: {SMOKE})")
    made.add_argument("--json", action="store_true", help="print one JSON document")
    made.add_argument(
        "--only",
        metavar="CHECK",
        action="append",
        default=[],
        help="run this check only (repeatable); the verdict is then incomplete at best",
    )
    made.add_argument(
        "--rehearse",
        action="store_true",
        help="run the code of the GPU checks on the CPU, as far as it can; never a pass",
    )
    made.add_argument("--output", metavar="FILE", type=Path, help="write the JSON document there")
    made.add_argument("--list", action="store_true", help="list the checks and run none")
    made.add_argument(
        "--cell",
        metavar="FILE",
        type=Path,
        help=f"what the image promises (default: ${CELL_FILE_VARIABLE}, else {CELL_FILE})",
    )
    add_options(made)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["arch"]:
        # Imported only here: the levels need none of it in this process.
        return int(importlib.import_module("rocm_torch_selftest.arch.cli").main(words[1:]))
    made = parser()
    call = made.parse_args(words)
    if call.list:
        rows = checks_of(call.level) if call.level else CHECKS
        sys.stdout.write("\n".join(check_lines(rows)) + "\n")
        return 0
    level = call.level or SMOKE
    bench = request_of(call)
    if level != BENCH and bench != Request():
        made.error("--subset, --dtype, --budget and --processes belong to --level bench")
    checks = _selected(made, level, [*call.only, *bench.subset])
    signal.signal(signal.SIGTERM, _interrupt)  # docker stop: end the children, then this process
    try:
        cell = read_cell(call.cell, os.environ)
        with working_directory() as scratch, stdout_kept_clean():
            setting = Setting(cell, scratch, device="cpu" if call.rehearse else "cuda")
            document = run_level(Run(level, checks, setting, bench))
        return _deliver(document, as_json=call.json, output=call.output)
    except (CellFileError, OSError) as error:
        sys.stderr.write(f"rocm-torch-selftest: {error}.\n")
        return BROKE
    except KeyboardInterrupt:
        sys.stderr.write("rocm-torch-selftest: interrupted; there is no result.\n")
        return BROKE


def _selected(made: argparse.ArgumentParser, level: str, only: Sequence[str]) -> tuple[Check, ...]:
    checks = checks_of(level)
    names = [check.id for check in checks]
    unknown = [name for name in only if name not in names]
    if unknown:
        made.error(f"{unknown[0]}: level {level} has no such check; it has {', '.join(names)}")
    return tuple(check for check in checks if check.id in only) if only else checks


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _deliver(document: dict[str, Any], *, as_json: bool, output: Path | None) -> int:
    text = json.dumps(document, indent=2) + "\n"
    sys.stdout.write(text if as_json else "\n".join(report_lines(document)) + "\n")
    sys.stdout.flush()
    if output is not None:
        write_atomically(output, text)
    return EXIT_CODES[document["summary"]["verdict"]]


@contextlib.contextmanager
def working_directory() -> Iterator[Path]:
    """Make a directory for this run, on a read-only root in /dev/shm, and remove it after.

    Child processes get the place as TMPDIR where the usual ones cannot be written.

    Raises:
        OSError: no place can be written.
    """
    try:
        path = tempfile.mkdtemp(prefix="rocm-torch-selftest-")
    except FileNotFoundError:
        path = tempfile.mkdtemp(prefix="rocm-torch-selftest-", dir="/dev/shm")
        os.environ["TMPDIR"] = path
    try:
        yield Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """Send everything that is written to file descriptor 1 to stderr for a while.

    Child processes write to logs; this is for what any library of this process may print.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
