"""The process that measures one thing once; its answer is a file.

It is started by a supervisor (``launch.py``) and not by people.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Mapping

from rocm_torch_selftest.bench.clock import SLOWDOWN_VARIABLE, clock_for
from rocm_torch_selftest.child import write_atomically
from rocm_torch_selftest.context import backend_of, load_torch

OK = "ok"
OUT_OF_MEMORY = "out-of-memory"
REFUSED = "refused"
NO_GPU = "no-gpu"
CPU = "cpu"
GPU = "cuda:0"
JOBS = {
    "workload": "model_job",
    "gemm": "gemm",
    "bandwidth": "bandwidth",
    "startup": "startup",
}
_MEMORY_WORDS = ("out of memory", "alloc_failed", "can't allocate memory", "hip_error_outofmemory")


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error means that memory, the device's or the host's, was too small."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return any(word in str(error).lower() for word in _MEMORY_WORDS)


def slowdown_of(environment: Mapping[str, str]) -> float:
    """Return the factor of ``ROCM_TORCH_BENCH_SLOWDOWN``, a test aid: 1.15 adds 15 % a step.

    Raises:
        ValueError: it is not a number of 1 or more.
    """
    text = environment.get(SLOWDOWN_VARIABLE, "1")
    factor = float(text)
    if not factor >= 1.0:
        raise ValueError(f"{SLOWDOWN_VARIABLE} is {text!r}, not a number of 1 or more")
    return factor


class Bench:
    """What a job needs of the process: torch, the device, and the times until they were ready."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        started = time.perf_counter()
        self.torch = load_torch()
        self.import_s = time.perf_counter() - started
        self.request = request
        self.backend = backend_of(self.torch)
        self.slowdown = slowdown_of(os.environ)
        self.device = CPU if self.backend == CPU else GPU

    def available(self) -> bool:
        """Say whether the device can be used."""
        return self.device == CPU or bool(self.torch.cuda.is_available())

    def wait(self) -> None:
        """Return when the device has done all of its work."""
        if self.device != CPU:
            self.torch.cuda.synchronize()

    def first_kernel(self) -> float:
        """Run the first kernel of the process and return its seconds, the context's included."""
        started = time.perf_counter()
        (self.torch.zeros(16, device=self.device) + 1).sum()
        self.wait()
        return time.perf_counter() - started

    def clock(self) -> Any:
        """Return a clock for the device."""
        return clock_for(self.torch, self.device, self.slowdown)


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Do the job of a request and return its answer, whichever way it ends."""
    try:
        bench = Bench(request)
        if request["job"] != "startup" and not bench.available():
            return {"status": NO_GPU, "detail": f"torch (backend {bench.backend}) sees no GPU."}
        job = importlib.import_module(f"rocm_torch_selftest.bench.{JOBS[request['job']]}")
        return {"status": OK, **job.run(bench)}
    except (RuntimeError, OSError, ImportError, MemoryError, ValueError) as error:
        status = OUT_OF_MEMORY if is_out_of_memory(error) else REFUSED
        line = (str(error).strip().splitlines() or ["(no message)"])[0]
        return {"status": status, "detail": f"{type(error).__name__}: {line}"}


def main(request_path: str) -> int:
    """Run the request in a file and write the answer beside it."""
    path = Path(request_path)
    answer = run(json.loads(path.read_text(encoding="utf-8")))
    write_atomically(path.with_suffix(".answer"), json.dumps(answer))
    sys.stdout.flush()
    return 0
