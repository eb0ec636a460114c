"""Lines that libraries print about a GPU: those that are harmless, and those that name a fault.

A harmless line never fails a check whose result is right; it is counted, with the reason why it
is harmless. The same text beside a failure excuses nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping

ARCH_NOT_IN_TORCH = "ARCH_NOT_IN_TORCH"
GPU_MEMORY_FAULT = "GPU_MEMORY_FAULT"
GPU_HANG = "GPU_HANG"
SHM_TOO_SMALL = "SHM_TOO_SMALL"
OVERRIDE_VARIABLE = "HSA_OVERRIDE_GFX_VERSION"


@dataclass(frozen=True)
class HarmlessLine:
    """A kind of line that means nothing for the result.

    Attributes:
        name: what it is called in reports.
        pattern: found anywhere in the line.
        reason: why it is harmless.
    """

    name: str
    pattern: re.Pattern[str]
    reason: str


HARMLESS_LINES = (
    HarmlessLine(
        "amdgpu.ids",
        re.compile(r"amdgpu\.ids: No such file"),
        "libdrm has no table of product names: only the name of the device is generic",
    ),
    HarmlessLine(
        "IsEnoughWorkspace",
        re.compile(r"MIOpen.*\bIsEnoughWorkspace\b"),
        "MIOpen leaves a solver out for want of workspace and takes another one",
    ),
    HarmlessLine(
        "hipBLASLt",
        re.compile(r"hipBLASLt on an unsupported architecture", re.IGNORECASE),
        "hipBLASLt has no kernels for this GPU and hipBLAS computes instead; timings differ",
    ),
)

_FAULTS = (
    (
        ARCH_NOT_IN_TORCH,
        re.compile(
            r"hipErrorNoBinaryForGpu|Unable to find code object for all current devices"
            r"|invalid device function|no kernel image is available"
            r"|Cannot read \S*TensileLibrary\S* *: *(?:Illegal seek|No such file)\S* for GPU arch",
            re.IGNORECASE,
        ),
    ),
    (GPU_MEMORY_FAULT, re.compile(r"Memory access fault by GPU node-(\d+)", re.IGNORECASE)),
    (
        SHM_TOO_SMALL,
        re.compile(
            r"unable to write to file </torch_|(?:creat|extend|attach)\w* shared memory segment"
            r"|/dev/shm/\S+.*No space left|insufficient shared memory",
            re.IGNORECASE,
        ),
    ),
)

_MEANINGS = {
    ARCH_NOT_IN_TORCH: "this torch or its libraries have no kernels for this GPU",
    SHM_TOO_SMALL: "the shared memory is too small; start the container with --shm-size 16g or "
    "--ipc=host",
}


def harmless_counts(text: str) -> dict[str, int]:
    """Count the harmless lines of a log by name."""
    counts: dict[str, int] = {}
    for line in text.splitlines():
        for kind in HARMLESS_LINES:
            if kind.pattern.search(line):
                counts[kind.name] = counts.get(kind.name, 0) + 1
                break
    return counts


def fault(
    text: str, environment: Mapping[str, str], kfd_targets: Mapping[int, str]
) -> tuple[str, str] | None:
    """Find the first known fault in what a failed check and its process said.

    Args:
        text: detail and log.
        environment: environment variables of the process.
        kfd_targets: target of each GPU by KFD node number; a fault names that number, which is
            not the index that HIP or torch count by.

    Returns:
        A stable code and its meaning as half a sentence, or None.
    """
    for code, pattern in _FAULTS:
        match = pattern.search(text)
        if match is None:
            continue
        meaning = _MEANINGS.get(code) or _memory_fault(int(match.group(1)), kfd_targets)
        override = environment.get(OVERRIDE_VARIABLE)
        if override and code != SHM_TOO_SMALL:
            meaning += f"; {OVERRIDE_VARIABLE}={override} makes it run kernels of another target"
        return code, meaning
    return None


def _memory_fault(node: int, kfd_targets: Mapping[int, str]) -> str:
    whose = kfd_targets.get(node)
    gpu = f"KFD node {node} ({whose})" if whose else f"KFD node {node}"
    return f"a kernel read or wrote outside of its memory on {gpu}"
