"""How the device was doing while it worked: clocks, temperature, power, and who else uses it."""

from __future__ import annotations

import os
import shutil
import threading
from typing import Any, Callable

from rocm_torch_selftest.bench import smi
from rocm_torch_selftest.checks.environment import pci_address
from rocm_torch_selftest.context import Ran, backend_of, run_program

_LIMIT_S = 20.0
_NVIDIA = (
    ("nvidia-smi", f"--query-gpu={','.join(smi.NVIDIA_FIELDS)}", "--format=csv,noheader,nounits"),
    ("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"),
)
_AMD = tuple(("amd-smi", word, "--json") for word in ("metric", "static", "process"))
_ROCM = (
    (
        "rocm-smi",
        *("--showclocks", "--showtemp", "--showpower", "--showmaxpower", "--showpids", "--json"),
    ),
)

Which = Callable[[str], Any]
Program = Callable[[Any], Ran]


def under_load(torch: Any, device: str, step: Callable[[], Any]) -> dict[str, Any] | None:
    """Ask the vendor's tool while more steps run, after the measurement; None on a CPU."""
    if device == "cpu":
        return None
    address = pci_address(torch.cuda.get_device_properties(0))
    answers: list[dict[str, Any]] = []

    def ask() -> None:
        answers.append(read_state(backend_of(torch), address))

    asker = threading.Thread(target=ask)
    asker.start()
    while asker.is_alive():
        step()
        torch.cuda.synchronize()
    asker.join()
    return answers[0] if answers else {"reason": "the vendor's tool could not be asked"}


def read_state(
    backend: str,
    address: str | None,
    which: Which = shutil.which,
    program: Program = lambda argv: run_program(argv, limit_s=_LIMIT_S),
) -> dict[str, Any]:
    """Return the state by the first tool that answers; what is not known is None, with a reason.

    Args:
        backend: ``cuda`` or ``hip``.
        address: PCI address of the device, or None where torch does not say it.
        which: finds a program.
        program: runs one.
    """
    tools = ("nvidia-smi",) if backend == "cuda" else ("amd-smi", "rocm-smi")
    reasons = []
    for tool in tools:
        if which(tool) is None:
            reasons.append(f"{tool} is not installed")
            continue
        try:
            return {"tool": tool, **_READERS[tool](address, program), "reason": None}
        except smi.UnreadableError as error:
            reasons.append(str(error))
    nothing: dict[str, Any] = dict.fromkeys((*smi.KEYS, "other_processes"))
    return {"tool": None, **nothing, "reason": "; ".join(reasons)}


def _nvidia(address: str | None, program: Program) -> dict[str, Any]:
    state, processes = (_said(program, argv) for argv in _NVIDIA)
    found = smi.nvidia_state(state, address, 0)
    return {**found, **_others(smi.nvidia_processes(processes))}


def _amd(address: str | None, program: Program) -> dict[str, Any]:
    metric, static, processes = (_said(program, argv) for argv in _AMD)
    index = smi.amd_index(static, address, 0)
    found = smi.amd_state(metric, static, index)
    return {**found, **_others(smi.amd_processes(processes, index))}


def _rocm(_address: str | None, program: Program) -> dict[str, Any]:
    said = _said(program, _ROCM[0])
    return {**smi.rocm_state(said, 0), **_others(smi.rocm_processes(said))}


_READERS: dict[str, Any] = {"nvidia-smi": _nvidia, "amd-smi": _amd, "rocm-smi": _rocm}


def _said(program: Program, argv: Any) -> str:
    ran = program(argv)
    if ran.status != 0:
        raise smi.UnreadableError(f"{argv[0]} failed: {ran.last_line}")
    return ran.stdout


def _others(processes: list[dict[str, Any]]) -> dict[str, Any]:
    """Leave this process out; in a container of its own ids it is among the others."""
    return {"other_processes": [one for one in processes if one["pid"] != os.getpid()]}
