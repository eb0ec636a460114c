"""Checks ``graph`` and ``streams``: work that is captured, and work that waits for other work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocm_torch_selftest.checks.gpu import first_device, gpu_only_torch
from rocm_torch_selftest.outcome import CheckFailedError, failed, passed

if TYPE_CHECKING:
    from rocm_torch_selftest.context import Context
    from rocm_torch_selftest.outcome import Outcome

SIDE = 257
REPLAYS = 5
ROUNDS = 20
LONG = 2048  # side of the products that keep a stream busy


def run_graph(context: Context) -> Outcome:
    """Capture a few operations once and replay them over other inputs."""
    torch, skip = gpu_only_torch(context)
    if skip is not None:
        return skip
    device = first_device(context)
    weight = torch.eye(SIDE, device=device) * 2.0
    static = torch.zeros(SIDE, SIDE, device=device)
    context.stage("warm up on a side stream")
    side = torch.cuda.Stream(device=device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(3):
            _work(torch, static, weight)
    torch.cuda.current_stream(device).wait_stream(side)
    context.stage("capture")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = _work(torch, static, weight)
    for number in range(REPLAYS):
        context.stage(f"replay {number + 1}")
        given = torch.full((SIDE, SIDE), float(number), device=device)
        static.copy_(given)
        graph.replay()
        torch.cuda.synchronize(device)
        if not torch.equal(result, torch.full_like(result, 2.0 * number + 1.0)):
            return failed(f"Replay {number + 1} of a captured graph gives wrong results.")
    return passed(f"A captured graph was replayed {REPLAYS} times over new inputs.")


def _work(torch: Any, given: Any, weight: Any) -> Any:
    """Compute 2 x + 1, exactly: by a product with twice the unit matrix, and a sum."""
    return torch.relu(given @ weight) + 1.0


def run_streams(context: Context) -> Outcome:
    """Let one stream wait for another's event; read what the other wrote last."""
    torch, skip = gpu_only_torch(context)
    if skip is not None:
        return skip
    device = first_device(context)
    first, second = torch.cuda.Stream(device=device), torch.cuda.Stream(device=device)
    busy = torch.ones(LONG, LONG, device=device)
    shared = torch.zeros(SIDE, device=device)
    seconds = 0.0
    for number in range(1, ROUNDS + 1):
        context.stage(f"round {number}: record, wait, copy")
        seconds += _hand_over(torch, (first, second), busy, shared, float(number))
    if not seconds > 0.0:
        return failed("Events say that no time passed between begin and end of the work.")
    return passed(
        f"{ROUNDS} times a stream waited for another's event and saw what it had written.",
        busy_seconds=seconds,
    )


def _hand_over(
    torch: Any, streams: tuple[Any, Any], busy: Any, shared: Any, number: float
) -> float:
    """Write on one stream after long work, read on the other; return the seconds of the work."""
    first, second = streams
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    with torch.cuda.stream(first):
        begin.record(first)
        product = busy
        for _ in range(4):
            product = (product @ busy) * (1.0 / LONG)
        shared.copy_(product[0, :SIDE] * number)
        end.record(first)
    with torch.cuda.stream(second):
        second.wait_event(end)
        seen = shared.clone()
    second.synchronize()
    if not torch.equal(seen, torch.full_like(seen, number)):
        raise CheckFailedError("A stream that waited for an event did not see what came before it.")
    if not end.query():
        raise CheckFailedError("An event is not done although a stream has waited for it.")
    return float(begin.elapsed_time(end)) / 1000.0
