"""Check ``transfer``: bytes survive the way to the GPU and back, pinned and pageable."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.checks.gpu import first_device, synchronize, usable_torch
from rocm_torch_selftest.outcome import CheckFailedError, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

SIZES = (1, 4097, 64 * 2**20, 64 * 2**20 + 13)  # bytes
TIMED = 64 * 2**20
KINDS = ("pageable", "pinned")


def run(context: Context) -> Outcome:
    """Send random bytes both ways and compare each one."""
    torch, skip = usable_torch(context)
    if skip is not None:
        return skip
    device = first_device(context)
    generator = torch.Generator().manual_seed(2)
    rates: dict[str, float] = {}
    for size in SIZES:
        source = torch.randint(0, 256, (size,), generator=generator, dtype=torch.uint8)
        for kind in KINDS:
            if kind == "pinned" and device == "cpu":
                continue
            context.stage(f"{size} bytes, {kind}")
            to, back = there_and_back(torch, source, device, pinned=kind == "pinned")
            if size == TIMED:
                rates[f"{kind} to device"] = round(size / to / 1e9, 2)
                rates[f"{kind} from device"] = round(size / back / 1e9, 2)
    told = ", ".join(f"{name} {rate:g}" for name, rate in rates.items())
    return passed(f"All bytes survive both ways; GB/s: {told}.", gb_per_s=rates)


def there_and_back(torch: Any, source: Any, device: str, *, pinned: bool) -> tuple[float, float]:
    """Copy to the device and back; return the seconds of each way, at best of three.

    Raises:
        CheckFailedError: a byte differs, or pinned memory is not pinned.
    """
    host = source.pin_memory() if pinned else source
    target = torch.empty_like(source, pin_memory=pinned)
    if pinned and not (host.is_pinned() and target.is_pinned()):
        raise CheckFailedError("Memory that was to be pinned is not.")
    remote = torch.empty_like(source, device=device)
    seconds: dict[str, list[float]] = {"to": [], "back": []}
    for _ in range(3):
        for way, into, out_of in (("to", remote, host), ("back", target, remote)):
            started = time.perf_counter()
            into.copy_(out_of, non_blocking=pinned)
            synchronize(torch, device)
            seconds[way].append(max(time.perf_counter() - started, 1e-9))
    if not torch.equal(target, source):
        wrong = int((target != source).sum().item())
        kind = "pinned" if pinned else "pageable"
        raise CheckFailedError(
            f"{wrong} of {source.numel()} bytes differ after the way to {device} and back "
            f"({kind} memory).",
            wrong=wrong,
        )
    return min(seconds["to"]), min(seconds["back"])
