"""Rules about where torch comes from: pip takes the highest version of all indexes that it has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from builder.errors import Problem
from builder.plan.lint.model import Finding
from builder.plan.lint.shell import PipCall, requirement_name

if TYPE_CHECKING:
    from collections.abc import Iterator

TORCH = frozenset({"torch", "torchvision", "torchaudio"})
# Beside torch itself: what asks for an exact torch or CUDA, or is another build of a part of it.
REPLACING = TORCH | {
    *("triton", "pytorch-triton-rocm", "triton-rocm", "torchtext", "xformers", "bitsandbytes"),
    *("vllm", "flash-attn", "deepspeed"),
}
# An exact build of ROCm cannot be anything else, whichever index has it.
_EXACT = re.compile(r"===?\s*[0-9][^+\s;]*\+[a-z0-9.]*rocm[a-z0-9.]*")
_EXTRAS = re.compile(r"\[([^\]]+)\]")
_ROCM_INDEX = re.compile(r"rocm|repo\.radeon\.com|amd", re.IGNORECASE)
_FLAT = re.compile(r"repo\.radeon\.com/rocm/manylinux")
_CONSTRAINTS = (
    "install it with `-c /usr/share/rocm-torch/constraints.txt`, which holds the versions that the"
    " image has"
)


def check_pip(call: PipCall, where: str) -> Iterator[Finding]:
    """Judge one call of pip."""
    loose = [
        text
        for text in call.requirements
        if requirement_name(text) in TORCH and not _EXACT.search(text)
    ]
    extra = call.values("--extra-index-url", "--index")
    index = call.values("--index-url", "-i", "--default-index")
    offline = bool(call.values("--no-index")) or "--no-index" in dict(call.options)
    if loose and not offline and (extra or not any(map(_ROCM_INDEX.search, index))):
        yield _from_pypi(loose, extra, where)
    for address in (*index, *extra):
        if _FLAT.search(address):
            yield Finding(
                Problem(
                    code="INDEX_STYLE_MISMATCH",
                    what=f"{address} is given as an index, and it is a flat folder of wheels",
                    where=where,
                    why='pip finds nothing there and says "from versions: none"',
                    fix=f"write `--find-links {address} --no-index`, and exact versions",
                )
            )
    constrained = bool(call.values("-c", "--constraint"))
    for text in call.requirements:
        if requirement_name(text) not in TORCH and not constrained:
            yield from check_requirement(text, where)


def check_requirement(text: str, where: str) -> Iterator[Finding]:
    """Judge one requirement that is installed over an image that has torch."""
    name, extras = requirement_name(text), _EXTRAS.search(text)
    brought = {requirement_name(one) for one in extras[1].split(",")} if extras else set()
    named = ([name] if name in REPLACING else []) + sorted(brought & REPLACING)
    if not named or _EXACT.search(text):
        return
    yield Finding(
        Problem(
            code="ROCM_TORCH_REPLACED",
            what=f"`{text.strip()}` can put a CUDA build in the place of the image's"
            f" torch ({', '.join(named)})",
            where=where,
            why="released packages of PyPI ask for an exact torch, and PyPI's is for CUDA",
            fix=f"leave out what the image has; otherwise {_CONSTRAINTS}",
        )
    )


def extra_index_of_environment(where: str, name: str) -> Finding:
    """Return what is wrong with an index that every later call of pip sees as well."""
    return Finding(
        Problem(
            code="TORCH_FROM_PYPI_RISK",
            what=f"{name} is set for every pip that runs later",
            where=where,
            why="pip takes the highest version of all indexes, so a newer CUDA torch of PyPI wins",
            fix="give --index-url to the one call that installs torch",
        )
    )


def _from_pypi(loose: list[str], extra: tuple[str, ...], where: str) -> Finding:
    names = ", ".join(loose)
    read = f"with --extra-index-url {' '.join(extra)}" if extra else "without an index of ROCm"
    return Finding(
        Problem(
            code="TORCH_FROM_PYPI_RISK",
            what=f"{names} is installed {read}: a newer CUDA build of PyPI is taken",
            where=where,
            why="pip merges all indexes and takes the highest version; +rocm counts only among"
            " equal ones",
            fix="install torch, torchvision and torchaudio in a call of their own with --index-url"
            " of the ROCm index only, or as ==VERSION+rocmX.Y",
        )
    )
