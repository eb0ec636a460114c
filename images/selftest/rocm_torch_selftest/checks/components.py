"""How each component of the contents table is looked for: by using it, where that is possible."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Callable, Mapping

from rocm_torch_selftest.context import Context, run_program
from rocm_torch_selftest.outcome import CheckFailedError

Probe = Callable[[Context], str]

# What rocminfo says in any case: about the kernel module, or about the runtime (under WSL).
_ROCMINFO_WORDS = ("rock module", "hsa")


def _program(*names: str) -> Probe:
    """Look for a program; any one of the names will do."""

    def probe(_: Context) -> str:
        for name in names:
            path = shutil.which(name)
            if path:
                return path
        raise CheckFailedError(f"{' or '.join(names)} is not on PATH")

    return probe


def _program_that_runs(name: str, *arguments: str) -> Probe:
    def probe(context: Context) -> str:
        path = _program(name)(context)
        said = run_program([path, *arguments])
        if said.status != 0:
            raise CheckFailedError(f"{name} {' '.join(arguments)} fails: {said.last_line}")
        return path

    return probe


def _rocminfo(context: Context) -> str:
    """Run rocminfo; without a GPU it says so and may exit with a failure, which is no fault."""
    path = _program("rocminfo")(context)
    said = run_program([path])
    words = (said.stdout + said.stderr).lower()
    if said.status is None or said.status < 0 or not any(word in words for word in _ROCMINFO_WORDS):
        raise CheckFailedError(f"rocminfo does not run: {said.last_line}")
    return path


def _compiler(name: str, suffix: str, source: str) -> Probe:
    def probe(context: Context) -> str:
        path = _program(name)(context)
        _compile(context, path, f"probe-{name}{suffix}", source)
        return path

    return probe


def _compile(context: Context, compiler: str, name: str, source: str, *options: str) -> None:
    file = context.scratch / name
    file.write_text(source, encoding="utf-8")
    target = file.with_suffix(file.suffix + ".o")
    said = run_program([compiler, *options, "-c", str(file), "-o", str(target)], limit_s=50)
    if said.status != 0 or not target.is_file() or not target.stat().st_size:
        raise CheckFailedError(f"{compiler} does not compile {name}: {said.last_line}")


def _python_headers(context: Context) -> str:
    """Find Python.h, and compile a file that includes it where there is a compiler."""
    folder = sysconfig.get_path("include")
    platform = sysconfig.get_path("platinclude")
    header = Path(folder) / "Python.h"
    if not header.is_file():
        raise CheckFailedError(f"{header} is not there")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler:
        source = "#include <Python.h>\nint probe(void) { return PY_MAJOR_VERSION; }\n"
        options = (f"-I{folder}", f"-I{platform}")
        _compile(context, compiler, "probe-python.c", source, *options)
    return str(header)


# A torchvision that was built for another torch can import and have none of its operators.
_USE_TORCHVISION = (
    "import torch; "
    "kept = torchvision.ops.nms(torch.tensor([[0., 0., 2., 2.], [0., 0., 2., 2.]]), "
    "torch.tensor([1., .5]), .5); "
    "assert kept.tolist() == [0], kept; "
)


def _module(name: str, use: str = "") -> Probe:
    """Import a module in a fresh process, and use it where ``use`` says how."""

    def probe(_: Context) -> str:
        code = f"import {name}; {use}print({name}.__version__)"
        said = run_program([sys.executable, "-c", code], limit_s=60)
        if said.status != 0:
            raise CheckFailedError(f"import {name} fails: {said.last_line}")
        return said.stdout.strip().splitlines()[-1]

    return probe


PROBES: Mapping[str, Probe] = {
    "rocminfo": _rocminfo,
    "rocm-smi": _program("rocm-smi"),
    "amd-smi": _program("amd-smi"),
    "gcc": _compiler("gcc", ".c", "int probe(int x) { return x + 1; }\n"),
    "g++": _compiler(
        "g++", ".cc", "#include <vector>\nint probe() { return std::vector<int>(3).size(); }\n"
    ),
    "python-headers": _python_headers,
    "hipcc": _program_that_runs("hipcc", "--version"),
    "hipify-perl": _program("hipify-perl"),
    "rocprof": _program("rocprof", "rocprofv2", "rocprofv3"),
    "clinfo": _program_that_runs("clinfo", "--version"),
    "torchvision": _module("torchvision", _USE_TORCHVISION),
    "torchaudio": _module("torchaudio"),
}
