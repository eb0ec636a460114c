"""What every GPU check asks first: whether there is a GPU, and may be used by this process."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.context import Context, backend_of, load_torch
from rocm_torch_selftest.outcome import CheckFailedError, skipped

if TYPE_CHECKING:
    from rocm_torch_selftest.outcome import Outcome

NO_TORCH = "There is no torch for this Python."
KFD = "dev/kfd"
CUDA_NODES = ("dev/nvidiactl", "dev/dxg")


def without_gpu(backend: str, root: Path = Path("/")) -> Outcome | None:
    """Return the skip of a machine or torch without a GPU, or None where a check can be tried.

    A GPU that is there and does not work is never a skip.

    Raises:
        CheckFailedError: /dev/kfd is there and this process may not open it.
    """
    if backend == "cpu":
        return skipped("This torch is built for the CPU: it cannot use a GPU.", backend=backend)
    if backend == "cuda":
        if any((root / node).exists() for node in CUDA_NODES):
            return None
        return skipped("There is no NVIDIA GPU here: no /dev/nvidiactl.", backend=backend)
    kfd = root / KFD
    if not kfd.exists():
        return skipped(
            "There is no AMD GPU here: no /dev/kfd; start the container with --device /dev/kfd "
            "--device /dev/dri.",
            backend=backend,
        )
    try:
        os.close(os.open(kfd, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        raise CheckFailedError(_cannot_open(kfd, error), errno=error.errno) from error
    return None


def _cannot_open(kfd: Path, error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        group = kfd.stat().st_gid
        return (
            f"{kfd} belongs to group {group} and user {os.getuid()} may not open it "
            f"({error.strerror}); start the container with --group-add {group}."
        )
    return f"{kfd} cannot be opened: {error.strerror}."


def prepared(context: Context) -> tuple[Any, Outcome | None]:
    """Import torch, or return the skip of a machine or torch without a GPU.

    In a rehearsal any torch will do.
    """
    context.stage("import torch")
    torch = load_torch()
    return torch, None if context.device == "cpu" else without_gpu(backend_of(torch))


def usable_torch(context: Context) -> tuple[Any, Outcome | None]:
    """Import torch and make sure that it sees a GPU, or return the skip.

    Raises:
        CheckFailedError: a GPU is there and torch does not see one.
    """
    torch, skip = prepared(context)
    if skip is not None or context.device == "cpu":
        return torch, skip
    context.stage("torch.cuda.is_available")
    if not torch.cuda.is_available() or not torch.cuda.device_count():
        backend = backend_of(torch)
        raise CheckFailedError(
            f"There is a GPU and torch (backend {backend}) sees no device.", backend=backend
        )
    return torch, None


def gpu_only_torch(context: Context) -> tuple[Any, Outcome | None]:
    """Do the same for a check that has no counterpart on the CPU: a rehearsal skips it."""
    if context.device == "cpu":
        return None, skipped("This check needs a GPU: there is nothing to rehearse on the CPU.")
    return usable_torch(context)


def devices(torch: Any, context: Context) -> tuple[str, ...]:
    """Return torch's names of the devices that a check is about."""
    if context.device == "cpu":
        return ("cpu",)
    return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))


def first_device(context: Context) -> str:
    """Return the device of the checks that are about one: the first."""
    return "cpu" if context.device == "cpu" else "cuda:0"


def synchronize(torch: Any, device: str) -> None:
    """Wait until a device has done all its work."""
    if device != "cpu":
        torch.cuda.synchronize(device)
