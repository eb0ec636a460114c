"""Adds a tensor over all ranks, and says which network and device did it.

Started by torchrun, on one node or many; without a GPU it uses gloo on the CPU.
"""

from __future__ import annotations

import faulthandler
import os
from datetime import timedelta

import torch
import torch.distributed as dist

_LIMIT = timedelta(minutes=5)


def main() -> None:
    """Add 1 over all ranks; every rank must see the number of ranks."""
    local, ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", local) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    # Limits of its own: a fabric that is set up wrongly hangs, without an error and without end.
    # Each rank then says where it stands, and ends.
    faulthandler.dump_traceback_later(_LIMIT.total_seconds(), exit=True)
    dist.init_process_group("nccl" if gpu else "gloo", timeout=_LIMIT)
    ones = torch.ones(1 << 20, device=device)
    dist.all_reduce(ones)
    if not bool((ones == ranks).all()):
        raise SystemExit(f"rank {dist.get_rank()}: got {ones[0].item()} and not {ranks}")
    if dist.get_rank() == 0:
        print(f"allreduce over {ranks} ranks on {device.type}: right", flush=True)
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
