"""How long a release takes when nothing changed: the whole process, for a number of tiny cells.

    .venv/bin/python benchmarks/second_release.py [CELLS] [RUNS]

It needs a running engine, builds the cells once, then prints the times of later runs beside that
of `rocm-torch --version`, which is what starting the program costs.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "engine"))

from projects import Project, copy_repo, tiny_project  # noqa: E402


def main(cells: int, runs: int) -> None:
    """Build ``cells`` tiny cells once and time ``runs`` releases after that."""
    state = ROOT / ".rocm-torch"
    state.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="benchmark-", dir=state))
    try:
        bases = folder / "bases"
        copy_repo(bases)
        Project(bases).done("lock", "cpu-py313")
        host = Project(bases).done("registry", "up")["host"]
        project = tiny_project(folder / "project", bases, host, cells=cells)
        first = project.release()
        times = []
        for _ in range(runs):
            started = time.monotonic()
            answer = project.release()
            times.append(time.monotonic() - started)
            if answer != first:
                sys.exit("a digest changed")
        started = time.monotonic()
        subprocess.run([sys.executable, "-m", "builder", "--version"], cwd=ROOT, check=True)
        floor = time.monotonic() - started
        middle = statistics.median(times)
        print(f"cells {cells}: median {middle:.2f} s, {min(times):.2f} to {max(times):.2f} s")
        print(f"starting the program: {floor:.2f} s; ratio {middle / floor:.1f}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    main(*(numbers + [24, 5][len(numbers) :]))
