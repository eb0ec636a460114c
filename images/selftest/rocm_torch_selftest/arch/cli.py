"""The command ``rocm-torch-selftest arch``: which targets the files of this torch serve."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Sequence

from rocm_torch_selftest.arch.files import blas_offers, find_torch, read_torch, torch_offer
from rocm_torch_selftest.arch.serving import judge
from rocm_torch_selftest.arch.targets import is_target

SCHEMA = "rocm-torch/arch/v1"
SERVED, COULD_NOT, NOT_SERVED, UNKNOWN, BAD_CALL = 0, 1, 2, 3, 64

_EPILOG = """\
exit status: 0 served, 2 not served, 3 the files do not tell, 1 there is no torch, 64 bad call

example:
  rocm-torch-selftest arch --target gfx1100
"""


def main(argv: Sequence[str]) -> int:
    """Answer from files alone: no GPU is asked and torch is not imported."""
    parser = argparse.ArgumentParser(
        prog="rocm-torch-selftest arch",
        description="Tell whether torch and its BLAS have code for a GPU, without a GPU.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", required=True, metavar="GFX", help="gfx1100, gfx90a:xnack-, …")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--torch", type=Path, metavar="DIR", help="package directory of torch")
    try:
        call = parser.parse_args(argv)
    except SystemExit as ending:
        return BAD_CALL if ending.code else 0
    if not is_target(call.target):
        sys.stderr.write(
            f"rocm-torch-selftest arch: --target {call.target} is no GPU target; write one like "
            "gfx1100, gfx90a or sm_90.\n"
        )
        return BAD_CALL
    torch = find_torch() if call.torch is None else read_torch(call.torch)
    if torch is None or not torch.folder.is_dir():
        sys.stderr.write("rocm-torch-selftest arch: there is no torch here.\n")
        return COULD_NOT
    offers = [torch_offer(torch)]
    if torch.backend == "hip":
        offers += blas_offers(torch)
    found = judge(call.target, torch.backend, offers)
    document = {
        "schema": SCHEMA,
        "target": call.target,
        **found.to_json(),
        "torch": {
            "version": torch.version,
            "backend": torch.backend,
            "hip": torch.hip,
            "folder": str(torch.folder),
        },
        "libraries": {
            offer.library: {"targets": list(offer.targets), "source": offer.source}
            for offer in offers
        },
    }
    text = json.dumps(document, indent=2) if call.json else "\n".join([found.detail, *found.notes])
    sys.stdout.write(text + "\n")
    return {True: SERVED, False: NOT_SERVED, None: UNKNOWN}[found.served]
