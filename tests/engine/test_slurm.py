"""Tests as jobs of a real Slurm: a cluster of one node in a container that we submit to."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from projects import REPO, Project

from builder.engines.docker_engine import DockerEngine
from builder.oci import Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from projects import Project

pytestmark = pytest.mark.engine
CLUSTER = Path(__file__).parent / "cluster"
EXAMPLES = REPO / "docs/examples"
COMMANDS = ("sbatch", "squeue", "scancel", "sinfo")


@dataclass(frozen=True)
class Cluster:
    """A running cluster; ``path`` is a search path whose Slurm commands reach it."""

    name: str
    path: str

    def ask(self, *words: str) -> str:
        done = subprocess.run(
            ["docker", "exec", self.name, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout


def until(what: Callable[[], bool], seconds: float = 180) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        os.sched_yield()
        signal.sigtimedwait([], 0.1)


def tools_image(project: Project) -> str:
    """Return the tools image that the project's conversions were made with."""
    log = (project.root / ".rocm-torch/tools.jsonl").read_text("utf-8")
    words = {word for line in log.splitlines() for word in json.loads(line)["argv"]}
    (name,) = (word for word in words if word.startswith("rocm-torch-tools:"))
    return str(name)


@pytest.fixture(scope="module")
def held(run_folder: Path, bases: Path, registry_url: str) -> Iterator[Project]:
    """Two tiny cells whose self-test waits for a file, built and converted."""
    from projects import tiny_project

    root = run_folder / "projects" / uuid.uuid4().hex[:12]
    project = tiny_project(root, bases, registry_url, cells=2)
    hold = root / "images/selftest/rocm_torch_selftest/hold"
    hold.write_text("", "ascii")
    project.done("build")
    for entry in project.done("matrix")["cells"]:
        project.done("sif", entry["id"])
    yield project
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(held: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    tools = tools_image(held)
    image = f"rocm-torch-test/cluster:{tools.partition(':')[2]}"
    if not DockerEngine().has_image(image):
        subprocess.run(
            [
                *("docker", "buildx", "build", "--load", "--quiet", "--provenance=false"),
                *(f"--build-arg=TOOLS={tools}", f"--tag={image}", str(CLUSTER)),
            ],
            check=True,
            timeout=600,
            stdout=subprocess.DEVNULL,
        )
    name = f"rocm-torch-test-cluster-{uuid.uuid4().hex[:8]}"
    unconfined = (f"--security-opt={what}=unconfined" for what in ("seccomp", "apparmor"))
    fuse = ("--device=/dev/fuse",) if Path("/dev/fuse").exists() else ()
    argv = [
        *("docker", "run", "--detach", "--rm", "--init", f"--name={name}", "--hostname=node1"),
        *(*unconfined, "--security-opt=systempaths=unconfined", *fuse),
        *(f"--volume={held.root}:{held.root}", f"--volume={EXAMPLES}:{EXAMPLES}:ro", image),
    ]
    subprocess.run(argv, check=True, timeout=120, stdout=subprocess.DEVNULL)
    programs = tmp_path_factory.mktemp("bin")
    for command in COMMANDS:
        program = programs / command
        program.write_text(f'#!/bin/sh\nexec docker exec {name} {command} "$@"\n', "ascii")
        program.chmod(0o755)
    cluster = Cluster(name, f"{programs}:{os.environ['PATH']}")
    try:
        until(lambda: cluster.ask("sinfo", "-h", "-o", "%T").strip() in ("idle", "mixed"))
        yield cluster
    finally:
        subprocess.run(["docker", "rm", "--force", name], check=True, stdout=subprocess.DEVNULL)


def start(project: Project, cluster: Cluster, *words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "builder", "--project", str(project.root), "--facts"]
    return subprocess.Popen(
        [*argv, str(project.facts), "test", "--executor", "slurm", "--json", *words],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": str(REPO), "PATH": cluster.path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def jobs(project: Project, step: str = "test-smoke") -> dict[str, str]:
    """Return the ids of the jobs that are under way, by cell, from their own files."""
    found = {}
    for path in (project.root / ".rocm-torch/slurm").glob(f"*/{step}/job.json"):
        try:
            number = json.loads(path.read_text("utf-8"))["job"]
        except (OSError, ValueError):
            continue
        if number:
            found[path.parent.parent.name] = number
    return found


def go(project: Project, cell: str, step: str = "test-smoke") -> None:
    (project.root / ".rocm-torch/slurm" / cell / step / "go").touch()


def running(project: Project, cell: str) -> bool:
    return (project.root / ".rocm-torch/slurm" / cell / "test-smoke/node").exists()


def report(project: Project, record: dict[str, Any]) -> dict[str, Any]:
    folder = project.root / ".rocm-torch/evidence" / Digest(record["digest"]).hex
    found: dict[str, Any] = json.loads((folder / f"{record['step']}.json").read_text("utf-8"))
    return found


def test_two_cells_run_as_jobs_and_a_killed_run_and_a_killed_job_are_taken_up_again(
    held: Project, cluster: Cluster
) -> None:
    first = start(held, cluster)
    until(lambda: len(jobs(held)) == 2 and all(running(held, cell) for cell in jobs(held)))
    before = jobs(held)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    kept, cancelled = sorted(before)
    assert cluster.ask("squeue", "-h", "-o", "%T").split() == ["RUNNING", "RUNNING"]
    cluster.ask("scancel", before[cancelled])
    until(lambda: len(cluster.ask("squeue", "-h", "-o", "%i").split()) == 1)
    second = start(held, cluster)
    until(lambda: jobs(held).get(cancelled) not in (None, before[cancelled]))
    assert jobs(held)[kept] == before[kept]
    for cell in (kept, cancelled):
        go(held, cell)
    out, err = second.communicate(timeout=300)
    assert second.returncode == 0, err
    records = {record["cell"]: record for record in json.loads(out)["records"]}
    assert {record["verdict"] for record in records.values()} == {"pass"}
    hosts = {cell: report(held, record)["host"] for cell, record in records.items()}
    assert hosts[kept] == {"executor": "slurm", "job": before[kept], "node": "node1"}
    assert hosts[cancelled]["job"] != before[cancelled]
    assert all(report(held, record)["selftest"]["checks"] for record in records.values())
    assert f"takes up job {before[kept]}" in err
    words = ("test", "--executor", "slurm", "--json")
    again = held.call(*words, PATH=cluster.path)  # passed on this digest: no job is submitted
    assert json.loads(again.stdout)["records"] == list(records.values())


def test_ctrl_c_cancels_the_jobs(held: Project, cluster: Cluster) -> None:
    cell = sorted(entry["id"] for entry in held.done("matrix")["cells"])[0]
    process = start(held, cluster, "--force", cell)
    until(lambda: cell in jobs(held) and running(held, cell))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    until(lambda: cluster.ask("squeue", "-h", "-o", "%i").split() == [])
    assert cell not in jobs(held)


def test_a_job_for_a_gpu_family_asks_for_a_node_that_has_it(
    held: Project, cluster: Cluster
) -> None:
    cell = sorted(entry["id"] for entry in held.done("matrix")["cells"])[0]
    process = start(held, cluster, "--gfx", "gfx000", cell)
    until(lambda: cell in jobs(held, "test-smoke-gfx000"))
    go(held, cell, "test-smoke-gfx000")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    (record,) = json.loads(out)["records"]
    assert record["step"] == "test-smoke-gfx000"
    refused = held.call(
        *("test", "--executor", "slurm", "--gfx", "gfx942", cell), PATH=cluster.path
    )
    assert refused.returncode == 1
    assert "SLURM_REFUSED" in refused.stderr


def test_a_job_that_ends_without_a_result_says_how(held: Project, cluster: Cluster) -> None:
    cell = sorted(entry["id"] for entry in held.done("matrix")["cells"])[0]
    process = start(held, cluster, "--force", cell)
    until(lambda: cell in jobs(held) and running(held, cell))
    cluster.ask("scancel", jobs(held)[cell])
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    (problem,) = json.loads(out)["problems"]
    assert problem["code"] == "SLURM_JOB_CANCELLED"
    assert "the same command submits it again" in problem["fix"]


def test_slurm_takes_the_two_node_example_with_what_a_site_adds(cluster: Cluster) -> None:
    script = str(EXAMPLES / "two_nodes.sbatch")
    site = ("--partition=debug", "--nodes=1", "--gpus-per-node=0")
    argv = ["docker", "exec", cluster.name, "sbatch", "--test-only", *site, script, "cpu.sif"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    both = [*argv[:4], "--test-only", "--partition=debug", script, "cpu.sif"]
    done = subprocess.run(both, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0, "this cluster has one node, and the example asks for two"
