"""Check ``dataloader``: two worker processes send batches through shared memory.

Docker gives a container 64 MiB of /dev/shm. This needs less, so that only a smaller one fails.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.context import Context, load_torch
from rocm_torch_selftest.outcome import CheckFailedError, failed, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.outcome import Outcome

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - this very place is what is tested
WORKERS = 2
BATCH = 4
BATCHES = 8
NUMBERS = 256 * 1024  # float32, so that one item is 1 MiB and one batch 4 MiB
# Each worker holds up to two finished batches while the main process holds one.
NEEDED_BYTES = (2 * WORKERS + 1) * BATCH * NUMBERS * 4
FIX = (
    "start the container with a larger --shm-size (docker's default is 64m; training wants some "
    "GB: --shm-size 16g) or with --ipc=host"
)
_SHORTAGE = ("bus error", "shared memory", "no space left")


class Counting:
    """A dataset whose item n is n times one, with the number of the process that made it."""

    def __len__(self) -> int:
        return BATCH * BATCHES

    def __getitem__(self, index: int) -> tuple[Any, int]:
        torch = load_torch()
        return torch.full((NUMBERS,), float(index)), os.getpid()


def run(context: Context) -> Outcome:
    """Load batches with two workers and check every number of them."""
    context.stage(f"read the size of {SHARED_MEMORY}")
    size, free = shared_memory_bytes(SHARED_MEMORY)
    if free < NEEDED_BYTES:
        return too_small(size, free)
    context.stage("import torch")
    torch = load_torch()
    loader = torch.utils.data.DataLoader(Counting(), batch_size=BATCH, num_workers=WORKERS)
    context.stage("load batches")
    try:
        workers = _load_all(loader, torch, context)
    except RuntimeError as error:
        if any(word in str(error).lower() for word in _SHORTAGE):
            return too_small(size, free, str(error))
        raise
    if len(workers) != WORKERS or os.getpid() in workers:
        return failed(f"{WORKERS} worker processes were asked for; {len(workers)} made batches.")
    return passed(
        f"{WORKERS} workers sent {BATCHES} batches of {BATCH * NUMBERS * 4 >> 20} MiB through "
        f"{SHARED_MEMORY} ({size >> 20} MiB).",
        shm_bytes=size,
        shm_free_bytes=free,
    )


def shared_memory_bytes(path: Path) -> tuple[int, int]:
    """Return size and free bytes of the shared-memory file system."""
    try:
        stat = os.statvfs(path)
    except OSError as error:
        raise CheckFailedError(f"There is no usable {path}: {error}; {FIX}.") from error
    return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


def too_small(size: int, free: int, said: str = "") -> Outcome:
    """Return the failure of a /dev/shm that cannot hold the batches, with the way out."""
    return failed(
        f"{SHARED_MEMORY} is too small: {size / 2**20:.1f} MiB, of which {free / 2**20:.1f} MiB "
        f"are free, and two workers need {NEEDED_BYTES >> 20} MiB here; {FIX}.",
        code="SHM_TOO_SMALL",
        shm_bytes=size,
        shm_free_bytes=free,
        needed_bytes=NEEDED_BYTES,
        said=said,
    )


def _load_all(loader: Any, torch: Any, context: Context) -> set[int]:
    workers: set[int] = set()
    seen = 0
    for number, (batch, pids) in enumerate(loader):
        context.stage(f"check batch {number}")
        first = number * BATCH
        expected = torch.arange(first, first + BATCH, dtype=torch.float32).unsqueeze(1)
        if tuple(batch.shape) != (BATCH, NUMBERS) or not bool((batch == expected).all()):
            raise CheckFailedError(f"Batch {number} does not hold the numbers that were sent.")
        if not batch.is_shared():
            raise CheckFailedError(f"Batch {number} did not come through shared memory.")
        workers.update(int(pid) for pid in pids)
        seen += 1
    if seen != BATCHES:
        raise CheckFailedError(f"{BATCHES} batches were sent and {seen} came.")
    return workers
