"""Check ``memory``: 1 GiB is allocated, filled and freed, and three counters agree about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.checks.gpu import first_device, gpu_only_torch
from rocm_torch_selftest.outcome import CheckFailedError, failed, passed, skipped

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

SIZE = 2**30
SLACK = 64 * 2**20  # of the device's own counter: contexts, code objects, its granularity
PATTERN = 0x5A5A_5A5A_5A5A_5A5A
ROUNDS = 3  # other processes move the device's counter too, but not each time


@dataclass(frozen=True)
class Counters:
    """Bytes: what torch gave out, what it keeps, and what the device says is free of how much."""

    allocated: int
    reserved: int
    free: int
    total: int


def run(context: Context) -> Outcome:
    """Fill 1 GiB with a pattern, read it back on the device, free it."""
    torch, skip = gpu_only_torch(context)
    if skip is not None:
        return skip
    device = first_device(context)
    shared = bool(getattr(torch.cuda.get_device_properties(device), "is_integrated", False))
    free, total = torch.cuda.mem_get_info(device)
    if free < SIZE + 2 * SLACK:
        return skipped(
            f"{free / 2**20:.0f} MiB of {total / 2**20:.0f} MiB are free: too little to try 1 GiB.",
            free=free,
            total=total,
        )
    problem: str | None = None
    for number in range(ROUNDS):
        context.stage(f"allocate, fill and free 1 GiB (round {number + 1})")
        before, held, after, peak = _round(torch, device)
        data = {
            "before": asdict(before),
            "held": asdict(held),
            "after": asdict(after),
            "peak": peak,
            "shared_with_host": shared,
        }
        problem = judge(before, held, after, peak, shared=shared)
        if problem is None:
            where = "memory shared with the host" if shared else "the device's own memory"
            return passed(f"1 GiB of {where} was filled, read and freed.", **data)
    return failed(str(problem), **data)


def _round(torch: Any, device: str) -> tuple[Counters, Counters, Counters, int]:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = _counters(torch, device)
    block = torch.empty(SIZE // 8, dtype=torch.int64, device=device)
    block.fill_(PATTERN)
    torch.cuda.synchronize(device)
    if int(block.min().item()) != PATTERN or int(block.max().item()) != PATTERN:
        raise CheckFailedError("1 GiB of device memory does not hold the pattern written to it.")
    held = _counters(torch, device)
    peak = int(torch.cuda.max_memory_allocated(device))
    del block
    torch.cuda.empty_cache()
    return before, held, _counters(torch, device), peak


def _counters(torch: Any, device: str) -> Counters:
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    allocated = int(torch.cuda.memory_allocated(device))
    return Counters(allocated, int(torch.cuda.memory_reserved(device)), int(free), int(total))


def judge(
    before: Counters, held: Counters, after: Counters, peak: int, *, shared: bool
) -> str | None:
    """Return what is wrong with the counters, as a sentence, or None.

    On an APU (``shared``) the device's own counter is of memory that the host uses as well, so it
    is told and not judged.
    """
    if held.allocated - before.allocated != SIZE:
        got = held.allocated - before.allocated
        return f"Torch counts {got} bytes more after an allocation of {SIZE}."
    if held.reserved < held.allocated or not held.allocated <= peak <= held.reserved + SIZE:
        return (
            f"Torch's counters contradict each other: allocated {held.allocated}, reserved "
            f"{held.reserved}, peak {peak}."
        )
    if after.allocated != before.allocated:
        return f"{after.allocated - before.allocated} bytes are still counted after freeing."
    if shared:
        return None
    taken, back = before.free - held.free, after.free - held.free
    if taken < SIZE - SLACK:
        return f"The device's free memory fell by {taken} bytes when {SIZE} were allocated."
    if back < SIZE - SLACK:
        return f"The device's free memory rose by {back} bytes when {SIZE} were freed."
    return None
