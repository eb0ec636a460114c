"""Run the self-test as ``python -m rocm_torch_selftest``."""

from __future__ import annotations

import sys

from rocm_torch_selftest.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
