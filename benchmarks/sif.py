"""How long a SIF takes: our conversion beside `apptainer build` with its defaults, the same image.

    .venv/bin/python benchmarks/sif.py [CELL [ROUNDS]]

It needs a running engine, builds the cell once (the Debian 13 one by default), converts it both
ways with the same Apptainer, one after the other, three times by default, and prints times and
sizes as ratios; the median of the rounds' ratios counts.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "engine")]

from projects import Project, copy_repo  # noqa: E402

from builder.engines.apptainer import Apptainer, container_options  # noqa: E402
from builder.engines.layout import Layout  # noqa: E402
from builder.engines.places import ToolsPlace, User  # noqa: E402
from builder.engines.process import ProcessRunner  # noqa: E402
from builder.oci import Digest  # noqa: E402


def main(cell: str = "cpu-py313", rounds: str = "3") -> None:
    """Convert ``cell`` both ways; ends with 1 where ours is slower than a third, or larger."""
    state = ROOT / ".rocm-torch"
    state.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="benchmark-", dir=state))
    try:
        project = Project(folder / "project")
        copy_repo(project.root)
        project.done("lock", cell)
        project.done("build", cell)
        project.done("sif", cell)  # makes the tools image
        found = [one_round(project, cell, folder / f"defaults-{n}") for n in range(int(rounds))]
        times, sizes = (sorted(column) for column in zip(*found, strict=True))
        time_ratio, size_ratio = median(times), median(sizes)
        print(f"time {time_ratio:.2f} ({times[0]:.2f} to {times[-1]:.2f}), size {size_ratio:.3f}")
        if time_ratio > 1 / 3 or size_ratio > 1:
            sys.exit(1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def one_round(project: Project, cell: str, folder: Path) -> tuple[float, float]:
    """Convert both ways, and return ours as parts of theirs: seconds, then bytes."""
    started = time.monotonic()
    record = project.done("sif", "--force", cell)["record"]
    ours = time.monotonic() - started
    theirs, size = by_defaults(project, Digest(record["digest"]), folder)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"rocm-torch sif: {ours:.1f} s, {record['size'] / 1e6:.1f} MB")
    print(f"apptainer build: {theirs:.1f} s, {size / 1e6:.1f} MB", flush=True)
    return ours / theirs, record["size"] / size


def by_defaults(project: Project, digest: Digest, folder: Path) -> tuple[float, int]:
    """Convert the image as `apptainer build` does it by itself; return seconds and bytes."""
    work = folder / "work"
    work.mkdir(parents=True)
    layout = project.root / ".rocm-torch/layout"
    view = Layout(layout).view(digest, folder / "layout")
    options = container_options(fuse=Path("/dev/fuse").exists())
    place = ToolsPlace(project.tools_image, "apptainer", User(0, 0), options)
    program = Apptainer(ProcessRunner(), place)
    sif = folder / "out.sif"
    started = time.monotonic()
    done = program.build(view, sif, temporary=work, squash=None, read=(layout.resolve(),))
    seconds = time.monotonic() - started
    if done.returncode != 0:
        sys.exit(done.tail())
    return seconds, sif.stat().st_size


if __name__ == "__main__":
    main(*sys.argv[1:])
