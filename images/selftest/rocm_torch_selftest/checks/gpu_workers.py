"""The processes of the checks ``concurrent`` and ``allreduce``: each does one job and answers."""

from __future__ import annotations

import datetime
import faulthandler
import json
import math
import os
import time
from pathlib import Path
from typing import Any, Callable, Mapping

from rocm_torch_selftest.checks import products
from rocm_torch_selftest.checks.gpu import synchronize
from rocm_torch_selftest.checks.gpu_crowd import quiet_environment
from rocm_torch_selftest.child import write_atomically
from rocm_torch_selftest.context import load_torch
from rocm_torch_selftest.outcome import CheckFailedError

MEET_S = 90.0
STUCK_S = 110.0
WORK_S = 2.0
COUNTS = (1, 1023, 4 * 2**20)
TYPES = ("float32", "bfloat16")


def main(request_path: str) -> int:
    """Do the job of the request file and write the answer beside it."""
    request: Mapping[str, Any] = json.loads(Path(request_path).read_text(encoding="utf-8"))
    faulthandler.dump_traceback_later(STUCK_S)  # a hang then says where it is
    jobs: Mapping[str, Callable[[Any, Mapping[str, Any]], dict[str, Any]]] = {
        "concurrent": concurrent,
        "allreduce": allreduce,
    }
    try:
        answer = jobs[request["job"]](load_torch(), request)
    except CheckFailedError as error:
        answer = {"problem": error.detail}
    write_atomically(Path(request["folder"]) / "answer", json.dumps(answer))
    faulthandler.cancel_dump_traceback_later()
    if request["device"] == "cpu":
        # gloo of torch 2.6 now and then never ends when it is taken down; a rehearsal is about
        # the sums. Of NCCL and RCCL the end is part of the test.
        os._exit(0)
    return 0


def _meet(request: Mapping[str, Any], point: str) -> None:
    """Wait until every worker has come to a point.

    Raises:
        CheckFailedError: one never is.
    """
    (Path(request["folder"]) / point).touch()
    deadline = time.monotonic() + MEET_S
    while not all((Path(peer) / point).exists() for peer in request["peers"]):
        if time.monotonic() > deadline:
            raise CheckFailedError(f"another process did not get {point}.")
        time.sleep(0.005)


def concurrent(torch: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """Multiply and compare for two seconds beside the other process."""
    device = request["device"]
    products.exact_product(torch, device, torch.float32)  # so that kernels are loaded
    _meet(request, "ready")
    started = time.time()
    count = 0
    while time.time() < started + WORK_S:
        products.worst_error(torch, device, torch.float32, products.SIZES[-1])
        count += 1
    synchronize(torch, device)
    return {"started": started, "ended": time.time(), "products": count}


def allreduce(torch: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """Add up whole numbers over all ranks, whose sums every type holds exactly."""
    quiet_environment()
    device, rank, ranks = request["device"], int(request["rank"]), int(request["ranks"])
    if device != "cpu":
        torch.cuda.set_device(device)
    group = torch.distributed
    group.init_process_group(
        request["backend"],
        init_method=f"file://{request['store']}",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=MEET_S),
    )
    sums = 0
    for name in TYPES:
        for count in COUNTS:
            pattern = torch.arange(count, device=device) % 7
            given = (pattern + rank).to(getattr(torch, name))
            group.all_reduce(given)
            expected = (pattern * ranks + ranks * (ranks - 1) // 2).to(torch.float64)
            if not torch.equal(given.to(torch.float64), expected):
                wrong = int((given.to(torch.float64) != expected).sum().item())
                raise CheckFailedError(f"{wrong} of {count} sums in {name} are wrong.")
            sums += count
    rate = _rate(torch, group, device)
    version = torch.cuda.nccl.version() if device != "cpu" else None
    # One that leaves while another still reads from it can leave that one waiting for ever.
    _meet(request, "done")
    if device != "cpu":
        group.destroy_process_group()
    return {"sums": sums, "gb_per_s": rate, "library": _words(version)}


def _rate(torch: Any, group: Any, device: str) -> float:
    """Return the size of a tensor over the time that its sum takes, in GB/s; best of three."""
    given = torch.zeros(COUNTS[-1], device=device)
    best: float = math.inf
    for _ in range(3):
        synchronize(torch, device)
        started = time.perf_counter()
        group.all_reduce(given)
        synchronize(torch, device)
        best = min(best, time.perf_counter() - started)
    return round(COUNTS[-1] * 4 / best / 1e9, 2)


def _words(version: Any) -> str | None:
    if version is None:
        return None
    return ".".join(str(part) for part in version) if isinstance(version, tuple) else str(version)
