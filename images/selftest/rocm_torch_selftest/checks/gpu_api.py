"""Check ``api``: how many calls of torch.cuda behave; each that does not is named.

Some calls go to a management library (amd-smi, NVML) that an image may lack: these are told and
do not fail. The others are what programs rely on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

from rocm_torch_selftest.checks.gpu import first_device, gpu_only_torch
from rocm_torch_selftest.outcome import failed, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

MIB = 2**20


@dataclass(frozen=True)
class Call:
    """One call: its name, what it must give, and whether programs rely on it.

    Attributes:
        name: as it is written below ``torch.cuda``.
        behaves: makes the call on a device and tells whether the answer is right.
        relied_on: a deviation fails the check; else it is only told.
    """

    name: str
    behaves: Callable[[Any, str], bool]
    relied_on: bool = True


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and value >= 0


def _random_repeats(torch: Any, device: str) -> bool:
    state = torch.cuda.get_rng_state(device)
    first = torch.randn(100, device=device)
    torch.cuda.set_rng_state(state, device)
    return bool(torch.equal(first, torch.randn(100, device=device)))


def _seed_repeats(torch: Any, device: str) -> bool:
    torch.cuda.manual_seed_all(5)
    first = torch.randn(100, device=device)
    torch.cuda.manual_seed_all(5)
    return bool(torch.equal(first, torch.randn(100, device=device)))


def _peak_counts(torch: Any, device: str) -> bool:
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.max_memory_allocated(device)
    block = torch.empty(8 * MIB, dtype=torch.uint8, device=device)
    return bool(torch.cuda.max_memory_allocated(device) >= before + block.numel())


def _out_of_memory(torch: Any, device: str) -> bool:
    total = torch.cuda.get_device_properties(device).total_memory
    try:
        torch.empty(4 * total, dtype=torch.uint8, device=device)
    except torch.cuda.OutOfMemoryError:
        return bool(torch.ones(3, device=device).sum().item() == 3.0)
    return False


def _limit_holds(torch: Any, device: str) -> bool:
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.05, device)
    try:
        torch.empty(int(0.1 * total), dtype=torch.uint8, device=device)
    except torch.cuda.OutOfMemoryError:
        return True
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        torch.cuda.empty_cache()
    return False


def _event_times(torch: Any, device: str) -> bool:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.ones(1000, 1000, device=device).sum()
    end.record()
    end.synchronize()
    return bool(end.query()) and 0 < begin.elapsed_time(end) < 60_000


def _stream_is_current(torch: Any, device: str) -> bool:
    stream = torch.cuda.Stream(device=device)
    with torch.cuda.stream(stream):
        inside = torch.cuda.current_stream(device) == stream
    return bool(inside and torch.cuda.current_stream(device) != stream)


def _freed_later(torch: Any, device: str) -> bool:
    stream = torch.cuda.Stream(device=device)
    block = torch.ones(1000, device=device)
    block.record_stream(stream)
    return bool(stream.query() or stream.synchronize() is None)


def _raw_memory(torch: Any, device: str) -> bool:
    place = torch.cuda.caching_allocator_alloc(4096, device)
    torch.cuda.caching_allocator_delete(place)
    return bool(place)


def _index(device: str) -> int:
    return int(device.rpartition(":")[2])


CALLS = (
    Call("is_available", lambda t, _: t.cuda.is_available() is True),
    Call("init", lambda t, _: t.cuda.init() is None),
    Call("is_initialized", lambda t, _: t.cuda.is_initialized() is True),
    Call("device_count", lambda t, d: t.cuda.device_count() > _index(d)),
    Call("set_device", lambda t, d: t.cuda.set_device(d) is None),
    Call("current_device", lambda t, d: t.cuda.current_device() == _index(d)),
    Call("get_device_name", lambda t, d: bool(t.cuda.get_device_name(d))),
    Call("get_device_capability", lambda t, d: min(t.cuda.get_device_capability(d)) >= 0),
    Call(
        "get_device_properties",
        lambda t, d: t.cuda.get_device_properties(d).multi_processor_count > 0,
    ),
    Call("get_arch_list", lambda t, _: bool(t.cuda.get_arch_list())),
    Call("mem_get_info", lambda t, d: 0 < t.cuda.mem_get_info(d)[0] <= t.cuda.mem_get_info(d)[1]),
    Call("memory_allocated", lambda t, d: t.cuda.memory_allocated(d) >= 0),
    Call("memory_reserved", lambda t, d: t.cuda.memory_reserved(d) >= t.cuda.memory_allocated(d)),
    Call("max_memory_allocated", _peak_counts),
    Call("memory_stats", lambda t, d: "allocated_bytes.all.current" in t.cuda.memory_stats(d)),
    Call("memory_summary", lambda t, d: "Allocated memory" in t.cuda.memory_summary(d)),
    Call("memory_snapshot", lambda t, _: isinstance(t.cuda.memory_snapshot(), list)),
    Call("empty_cache", lambda t, _: t.cuda.empty_cache() is None),
    Call("caching_allocator_alloc", _raw_memory),
    Call("OutOfMemoryError", _out_of_memory),
    Call("set_per_process_memory_fraction", _limit_holds),
    Call("synchronize", lambda t, d: t.cuda.synchronize(d) is None),
    Call("Event", _event_times),
    Call("Stream", _stream_is_current),
    Call("Stream(priority)", lambda t, d: t.cuda.Stream(device=d, priority=-1).priority <= 0),
    Call("default_stream", lambda t, d: t.cuda.default_stream(d).cuda_stream == 0),
    Call("record_stream", _freed_later),
    Call("get_rng_state", _random_repeats),
    Call("manual_seed_all", _seed_repeats),
    Call("is_bf16_supported", lambda t, _: isinstance(t.cuda.is_bf16_supported(), bool)),
    Call(
        "can_device_access_peer",
        lambda t, d: (
            t.cuda.device_count() < 2
            or isinstance(t.cuda.can_device_access_peer(d, (_index(d) + 1) % 2), bool)
        ),
    ),
    Call("ipc_collect", lambda t, _: t.cuda.ipc_collect() is None),
    Call("cudart", lambda t, _: t.cuda.cudart() is not None),
    Call(
        "nvtx.range_push",
        lambda t, _: t.cuda.nvtx.range_push("x") >= 0 and t.cuda.nvtx.range_pop() >= 0,
        relied_on=False,
    ),
    Call("utilization", lambda t, d: _is_number(t.cuda.utilization(d)), relied_on=False),
    Call("memory_usage", lambda t, d: _is_number(t.cuda.memory_usage(d)), relied_on=False),
    Call("temperature", lambda t, d: _is_number(t.cuda.temperature(d)), relied_on=False),
    Call("power_draw", lambda t, d: _is_number(t.cuda.power_draw(d)), relied_on=False),
    Call("clock_rate", lambda t, d: _is_number(t.cuda.clock_rate(d)), relied_on=False),
    Call("list_gpu_processes", lambda t, d: bool(t.cuda.list_gpu_processes(d)), relied_on=False),
)


def run(context: Context) -> Outcome:
    """Make each call."""
    torch, skip = gpu_only_torch(context)
    if skip is not None:
        return skip
    device = first_device(context)
    deviations: dict[str, str] = {}
    for call in CALLS:
        context.stage(f"torch.cuda.{call.name}")
        problem = deviation(call, torch, device)
        if problem is not None:
            deviations[call.name] = problem
    return judge(deviations)


def deviation(call: Call, torch: Any, device: str) -> str | None:
    """Make a call; return how it deviates, or None where it behaves."""
    try:
        right = call.behaves(torch, device)
    except (
        *(RuntimeError, OSError, ImportError, AttributeError),
        *(TypeError, ValueError, AssertionError),
    ) as error:
        words = str(error).strip().splitlines()
        return f"{type(error).__name__}: {words[0] if words else '(no message)'}"
    return None if right else "gives another answer than it must"


def judge(deviations: dict[str, str]) -> Outcome:
    """Fail for a call that programs rely on; name every deviation."""
    relied_on = {call.name for call in CALLS if call.relied_on}
    behave = len(CALLS) - len(deviations)
    broken = [f"{name} ({why})" for name, why in deviations.items() if name in relied_on]
    data = {"behave": behave, "calls": len(CALLS), "deviations": deviations}
    if broken:
        return failed(f"{behave} of {len(CALLS)} calls behave; {'; '.join(broken)}.", **data)
    rest = f"; these do not, and may: {', '.join(deviations)}" if deviations else ""
    return passed(f"{behave} of {len(CALLS)} calls of torch.cuda behave{rest}.", **data)
