"""Check ``distributions``: what is installed beside a ROCm build of torch leaves it as it was.

pip puts packages of PyPI in the place of ROCm ones without an error. What is installed shows it,
whatever asked for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterator, Sequence

from rocm_torch_selftest.context import NO_CELL, Context
from rocm_torch_selftest.installed import Installed, chain_to, read_installed
from rocm_torch_selftest.outcome import Outcome, failed, not_applicable, passed

_CUDA = re.compile(r"nvidia-.+|.+-cu1[0-9]")
# Bindings of the driver's management library, pure Python: they bring no CUDA and replace nothing.
_HARMLESS = frozenset({"nvidia-ml-py"})
_ROCM = re.compile(r"rocm([0-9]+(?:\.[0-9]+)*)")
_COMPANIONS = ("torchvision", "torchaudio")
_TRITONS = ("triton", "triton-rocm", "pytorch-triton-rocm")
_DEVICE = "torch-device-"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with the installed set."""

    code: str
    words: str


def run(context: Context) -> Outcome:
    """Read what is installed and judge it by the cell."""
    if context.cell is None:
        return not_applicable(NO_CELL)
    context.stage("read the installed distributions")
    installed = read_installed(("triton",))
    cell = context.cell
    return judge(installed, backend=cell.backend, torch=cell.torch_version, gfx=cell.gfx)


def judge(
    installed: Sequence[Installed], *, backend: str, torch: str, gfx: Sequence[str]
) -> Outcome:
    """Judge an installed set.

    Args:
        installed: all distributions.
        backend: what the image's torch is built for.
        torch: version of torch that the cell expects.
        gfx: GPU targets that the image is meant for.
    """
    if backend == "cuda":
        return not_applicable("This image is meant for CUDA, and has its packages.")
    found = [*_cuda(installed), *_triton(installed)]
    if backend == "hip":
        found += _replaced(installed, torch)
        found += _companions(installed)
        found += _device_code(installed, gfx)
    if found:
        return failed(
            " ".join(f"{one.words} [{one.code}]" for one in found),
            findings=[{"code": one.code, "words": one.words} for one in found],
        )
    return passed(f"{len(installed)} distributions are installed, and none is out of place.")


def _by_name(installed: Sequence[Installed], name: str) -> Installed | None:
    return next((one for one in installed if one.name == name), None)


def _chain(name: str, installed: Sequence[Installed]) -> str:
    return " -> ".join(f"{one.name} {one.version}" for one in chain_to(name, installed))


def _replaced(installed: Sequence[Installed], expected: str) -> Iterator[Finding]:
    torch = _by_name(installed, "torch")
    if torch is None or _is_build_of(torch.version, expected):
        return
    yield Finding(
        "ROCM_TORCH_REPLACED",
        f"torch is {torch.version} and the cell expects {expected}; it came with"
        f" {_chain('torch', installed)}.",
    )


def _is_build_of(version: str, expected: str) -> bool:
    """Tell whether a version is what a cell expects, which may leave the build's suffix open."""
    public, _, local = expected.partition("+")
    found, _, suffix = version.partition("+")
    if found != public:
        return False
    return not local or suffix == local or suffix.startswith(f"{local}.")


def _cuda(installed: Sequence[Installed]) -> Iterator[Finding]:
    names: list[str] = [
        one.name for one in installed if _CUDA.fullmatch(one.name) and one.name not in _HARMLESS
    ]
    if names:
        yield Finding(
            "ROCM_TORCH_REPLACED",
            f"{len(names)} packages for CUDA are installed ({', '.join(names)}); the first came"
            f" with {_chain(names[0], installed)}.",
        )


def _companions(installed: Sequence[Installed]) -> Iterator[Finding]:
    torch = _by_name(installed, "torch")
    for name in _COMPANIONS:
        other = _by_name(installed, name)
        if torch is not None and other is not None and not _agree(torch.version, other.version):
            yield Finding(
                "TORCHVISION_MISMATCH",
                f"{name} {other.version} was not built with torch {torch.version}.",
            )


def _agree(torch: str, other: str) -> bool:
    """Tell whether two builds have one origin, by what stands behind the plus.

    Builds of one index name the same ROCm. AMD's own name a commit each, and those differ; a
    package of PyPI has nothing there.
    """
    ours, theirs = torch.partition("+")[2], other.partition("+")[2]
    if not ours:
        return not theirs
    rocm, its = _ROCM.match(ours), _ROCM.match(theirs)
    if rocm and its:
        return rocm.group(1) == its.group(1)
    return bool(its) or theirs.startswith("git")


def _triton(installed: Sequence[Installed]) -> Iterator[Finding]:
    owners = [one for one in installed if "triton" in one.modules]
    if len(owners) > 1:
        names = " and ".join(f"{one.name} {one.version}" for one in owners)
        yield Finding("TRITON_CONFLICT", f"The module triton belongs to {names}.")
    torch = _by_name(installed, "torch")
    for name in _TRITONS:
        other = _by_name(installed, name)
        wanted = torch.pins.get(name) if torch is not None else None
        if other is not None and wanted is not None and other.version != wanted:
            yield Finding(
                "TRITON_CONFLICT", f"torch requires {name} {wanted} and has {name} {other.version}."
            )


def _device_code(installed: Sequence[Installed], gfx: Sequence[str]) -> Iterator[Finding]:
    torch = _by_name(installed, "torch")
    device = {one.name.rpartition("-")[2]: one for one in installed if _DEVICE in one.name}
    if torch is None or not (device or any(one.startswith("device-") for one in torch.extras)):
        return
    missing = [target for target in gfx if target not in device]
    if missing:
        yield Finding(
            "DEVICE_CODE_MISSING",
            f"torch {torch.version} keeps its device code in packages of their own, and those for"
            f" {', '.join(missing)} are not installed.",
        )
    for one in device.values():
        if one.version != torch.version:
            yield Finding(
                "DEVICE_CODE_MISSING",
                f"{one.name} is {one.version} and belongs to another torch than {torch.version}.",
            )
