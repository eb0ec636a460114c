"""How fast the matrix is: expand, render and plan many cells, beside bare Jinja of the same text.

    .venv/bin/python benchmarks/matrix_speed.py [CELLS ...]

First one process takes matrices of 1,000 and of 10,000 cells from text to a plan. What it costs, in
seconds of one CPU so that other work on the machine does not count, is printed as a ratio to
rendering as many Dockerfiles with Jinja and nothing else, and as the growth from the first size to
the last. Then `rocm-torch plan` of the real matrix is timed as a whole process, beside
`rocm-torch --version`, which is what starting the program costs.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import yaml

from builder.engines.process import ProcessRunner
from builder.facts import load_facts
from builder.matrix.lock import ArchiveState, Lock, LockedCell
from builder.oci import Digest
from builder.pipeline.plan import plan
from builder.pipeline.session import Session
from builder.pipeline.workspace import Tools, Workspace
from builder.report.progress import Silent

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
RUNS = 3
TORCHES = 50


def main(sizes: list[int]) -> None:
    """Print the figures of matrices of ``sizes`` cells, and those of the real one."""
    with tempfile.TemporaryDirectory(prefix="matrix-speed-") as name:
        totals = [_many(Path(name) / str(size), size) for size in sizes]
    growth = (totals[-1] / sizes[-1]) / (totals[0] / sizes[0])
    print(f"a cell of {sizes[-1]} costs {growth:.2f} times one of {sizes[0]}")
    (_, floor), (whole, busy) = _process("--version"), _process("plan", "--json")
    print(f"rocm-torch plan, whole process: {whole:.2f} s, of which {busy:.2f} s of a CPU,")
    print(f"  {busy / floor:.1f} times those of --version")


def _many(folder: Path, size: int) -> float:
    """Time one process of ``size`` cells and return the seconds of expand, render and plan."""
    _write(folder, size)
    best = min((_steps(folder) for _ in range(RUNS)), key=lambda steps: sum(steps.values()))
    total = sum(best.values())
    bare = _bare_jinja(folder)
    told = ", ".join(f"{name} {seconds:.3f}" for name, seconds in best.items())
    print(f"{size} cells: {total:.3f} s ({told}); {total / bare:.2f} times bare Jinja")
    return total


def _steps(folder: Path) -> dict[str, float]:
    load_facts.cache_clear()
    session = _session(folder)
    seconds: dict[str, float] = {}

    def timed(name: str, act: Callable[[], object]) -> None:
        started = time.process_time()
        act()
        seconds[name] = time.process_time() - started

    timed("facts and lock", lambda: (session.facts, session.lock))
    timed("expand", lambda: session.matrix)
    timed("render", lambda: [session.context(cell) for cell in session.matrix.cells])
    timed("plan", lambda: plan(session, session.matrix.cells, None))
    return seconds


def _bare_jinja(folder: Path) -> float:
    """Time Jinja alone on the text of the Dockerfiles that the cells come to."""
    session = _session(folder)
    texts = [session.context(cell)["Dockerfile"].decode() for cell in session.matrix.cells]
    lines = texts[0].splitlines()
    source = "{% for line in lines %}{{ line }}\n{% endfor %}"
    template = jinja2.Environment(autoescape=True).from_string(source)
    started = time.process_time()
    for _ in texts:
        template.render(lines=lines)
    return time.process_time() - started


def _session(folder: Path) -> Session:
    tools = Tools(
        ProcessRunner(),
        now=lambda: datetime.now(UTC),
        clock=time.monotonic,
        progress=Silent(),
    )
    return Session(
        Workspace(ROOT),
        tools,
        folder / "matrix.lock",
        folder / "matrix.yaml",
        facts_folder=folder / "facts",
    )


def _write(folder: Path, size: int) -> None:
    """Write matrix, facts and lock of ``size`` cells: more distributions, 50 torches on each."""
    torches = [f"2.{n}.0" for n in range(TORCHES)]
    distros = [f"debian13-{n}" for n in range(-(-size // TORCHES))]
    facts = folder / "facts"
    facts.mkdir(parents=True)
    shipped = ROOT / "builder/facts/data"
    for path in shipped.glob("*.yaml"):
        (facts / path.name).write_bytes(path.read_bytes())
    known = yaml.safe_load((shipped / "distributions.yaml").read_text("utf-8"))
    debian = next(one for one in known if one["name"] == "debian13")
    _dump(facts / "distributions.yaml", [*known, *(debian | {"name": name} for name in distros)])
    build = {
        "python": "3.13",
        "packages": ["python3-torch", "rocminfo"],
        "source": "made up for this measurement",
        "confidence": "seen",
    }
    builds = [
        build | {"distro": distro, "torch": torch, "torch_version": torch}
        for distro in distros
        for torch in torches
    ]
    _dump(facts / "distro_torch.yaml", builds)
    lane = {
        "purpose": "speed",
        "base": "distro",
        "default": True,
        "distro": distros,
        "torch": torches,
        "python": ["3.13"],
        "prefer": {"distro": distros},
        "policy": {"levels": ["smoke"]},
    }
    document = {"version": 1, "image": "speed/rocm-torch", "lanes": {"speed": lane}}
    _dump(folder / "matrix.yaml", document)
    archive = ArchiveState(
        "http://deb.debian.org/debian", "trixie", datetime(2026, 7, 11, tzinfo=UTC), Digest.of(b"")
    )
    entry = LockedCell(Digest.of(b"base"), "registry", (archive,), 1_795_913_593)
    names = (f"cpu-torch{torch}-py313-{distro}" for distro in distros for torch in torches)
    lock = Lock().with_cells(dict.fromkeys(names, entry))
    (folder / "matrix.lock").write_text(lock.to_text(), "utf-8")


def _dump(path: Path, document: object) -> None:
    path.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False), "utf-8")


def _process(*words: str) -> tuple[float, float]:
    """Return the seconds of one whole call of the program: the median, and those of a CPU."""
    walls, busy = [], []
    for _ in range(RUNS):
        before, started = os.times(), time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "builder", *words],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        walls.append(time.perf_counter() - started)
        after = os.times()
        user = after.children_user - before.children_user
        busy.append(user + after.children_system - before.children_system)
    return statistics.median(walls), statistics.median(busy)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [1_000, 10_000])
