"""A stand-in for the self-test, for images without torch: says by the contract what it is told to.

It lies in tiny test images only. The verdict stands in the file beside it. Where a file ``hold``
is there too, it waits for a file ``go`` in the folder of its report: a test that is still running.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

EXIT = {"pass": 0, "fail": 2, "incomplete": 3}
STATUS = {"pass": "pass", "fail": "fail", "incomplete": "skip"}


def main(arguments: list[str]) -> int:
    """Print one report and return the exit code that belongs to its verdict."""
    verdict = (Path(__file__).parent / "verdict").read_text(encoding="ascii").strip()
    cell = json.loads(Path("/usr/share/rocm-torch/cell.json").read_text(encoding="utf-8"))
    nodes = [path for path in ("/dev/kfd", "/dev/dri/renderD128") if Path(path).exists()]
    readable = []
    for path in nodes:
        try:
            with Path(path).open("rb"):
                readable.append(path)
        except OSError:
            continue
    status = STATUS[verdict]
    check = {"id": "stand-in", "level": "smoke", "status": status, "seconds": 0.0}
    document = {
        "schema": "rocm-torch/selftest/v1",
        "cell": cell["id"],
        "level": arguments[arguments.index("--level") + 1],
        "summary": {
            "passed": int(status == "pass"),
            "failed": int(status == "fail"),
            "skipped": int(status == "skip"),
            "verdict": verdict,
        },
        "environment": {"nodes": nodes, "readable": readable},
        "checks": [{**check, "detail": "A stand-in.", "data": {}}],
    }
    text = json.dumps(document) + "\n"
    if "--output" in arguments:
        output = Path(arguments[arguments.index("--output") + 1])
        while (Path(__file__).parent / "hold").exists() and not (output.parent / "go").exists():
            threading.Event().wait(0.1)
        output.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return EXIT[verdict]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
