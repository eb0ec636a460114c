"""Python packages: indexes, the distribution's Python, and torch that was replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.errors import Problem
from builder.plan.causes.model import Cause, Output, Pattern, Rule, regex

if TYPE_CHECKING:
    from collections.abc import Iterator

_NONE = regex(
    r"No matching distribution found for (?P<requirement>\S+)"
    r"|satisfies the requirement (?P<wanted>\S+) \(from versions: none\)"
)
_FROM_NONE = regex(r"\(from versions: none\)")
_FROM_SOME = regex(
    r"satisfies the requirement (?P<wanted>\S+)[^\n]*\(from versions: (?!none)(?P<versions>[^)]*)\)"
)
_UNREACHABLE = regex(
    r"Retry\(total=0|Max retries exceeded|NewConnectionError|Temporary failure in name resolution"
)
_INSTALLED = regex(r"Successfully installed (?P<names>[^\n]+)")
_COLLECTING = regex(r"Collecting (?P<name>torch)(?P<version>==\S+)?(?P<chain> \(from [^\n]+\))?$")
_NVIDIA = regex(r"(?:Collecting|Downloading) (?P<name>nvidia[-_][a-z0-9_-]+)")
CONSTRAINTS = (
    "install user requirements with `--constraint` and a file that holds the versions of torch,"
    " torchvision, torchaudio and triton that the image has"
)


def no_distribution(output: Output) -> Iterator[Cause]:
    """Tell an address that is no index from a network that was away."""
    found = _NONE.search(output.text)
    if found is None or not _FROM_NONE.search(output.text) or output.exit_code == 0:
        return
    if _UNREACHABLE.search(output.text):
        return  # the network has a rule of its own, and is the cause
    wanted = found["requirement"] or found["wanted"]
    used = output.pip_args.strip()
    read = f" with `{used}`" if used else ""
    yield Cause(
        Problem(
            code="INDEX_STYLE_MISMATCH",
            what=f"pip found no version at all of {wanted}{read}",
            why="an address given as --index-url must be a simple index (PEP 503): a flat folder"
            " of wheels, such as AMD's rocm/manylinux, has no page for the project. A wheel for"
            " another Python or another platform is not seen either",
            fix="give a flat folder as `--find-links URL --no-index`, and the exact version",
        ),
        position=found.start(),
    )


def version_gone(output: Output) -> Iterator[Cause]:
    """Tell that the index has the project and not this version."""
    found = _FROM_SOME.search(output.text)
    if found is None or output.exit_code == 0:
        return
    last = found["versions"].split(",")[-1].strip()
    yield Cause(
        Problem(
            code="VERSION_NOT_IN_INDEX",
            what=f"the index has no {found['wanted']}; the last version that it offers to this"
            f" Python is {last}",
            fix="take a version of the index, or the Python that the wanted one was built for",
        ),
        position=found.start(),
    )


def torch_replaced(output: Output) -> Iterator[Cause]:
    """Tell that pip took the ROCm build of torch away, even where it ended with success."""
    before = output.installed.get("torch")
    collected, nvidia = _COLLECTING.search(output.text), _NVIDIA.search(output.text)
    after = _version_after(output.text)
    replaced = after is not None and (before is None or after != before) and "+rocm" not in after
    if not (nvidia or (replaced and before is not None)):
        return
    first = (
        min(found.start() for found in (collected, nvidia) if found) if collected or nvidia else 0
    )
    names = ", ".join(output.requirements)
    chain = collected["chain"].strip() if collected and collected["chain"] else ""
    by = f" {chain}" if chain else f", asked for by {names}" if names else ""
    now = after or (collected["version"] or "").lstrip("=") if collected else after
    yield Cause(
        Problem(
            code="ROCM_TORCH_REPLACED",
            what=f"pip replaces torch {before or 'of the image'} by torch {now or 'of PyPI'}{by}"
            + (f" and installs {nvidia['name']}" if nvidia else ""),
            why="the builds on PyPI are for CUDA: what depends on an exact torch brings that one",
            fix=CONSTRAINTS,
        ),
        position=first,
    )


def _version_after(text: str) -> str | None:
    for found in reversed(list(_INSTALLED.finditer(text))):
        for word in found["names"].split():
            name, _, version = word.rpartition("-")
            if name == "torch":
                return version
    return None


RULES: tuple[Rule, ...] = (
    no_distribution,
    version_gone,
    torch_replaced,
    Pattern(
        code="PEP668",
        seen=regex(r"error: externally-managed-environment|This environment is externally managed"),
        what="pip refuses to install into the Python of the distribution",
        why="PEP 668: since Debian 12 and Ubuntu 24.04 that Python belongs to apt",
        fix="install into the image's own environment (/opt/venv/bin/python -m pip), or make one"
        " with `python3 -m venv /opt/venv`",
    ),
    Pattern(
        code="WHEEL_HASH_MISMATCH",
        seen=regex(r"THESE PACKAGES DO NOT MATCH THE HASHES|Hash mismatch for `?(?P<name>\S+)"),
        what="a downloaded wheel is not the one of the lock: its hash differs",
        why="the file was replaced at its address, or a proxy changed it",
        fix="compare with the index; `rocm-torch lock --update` takes over a wanted change",
    ),
    Pattern(
        code="NO_TORCH_IN_PYTHON",
        seen=regex(r"ModuleNotFoundError: No module named '(?P<name>torch)'"),
        what="the Python that ran has no {name}",
        why="an image can have several: AMD's keep torch in /opt/venv or in a conda environment"
        " /opt/conda/envs/py_*, and RUN reads no .bashrc",
        fix="call the Python that has torch by its whole path, and check that the base's tag names"
        " PyTorch",
    ),
)
