"""What docs/hpc.md tells, done with the image of the demo: real torch under a real Apptainer."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from projects import REPO, Project

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.engine, pytest.mark.slow]
# Debian 13's torch has no libuv, without which its torchrun cannot start; this one is older.
CELL = "cpu-torch1.13.1-py311-debian12"
EXAMPLES = REPO / "docs/examples"
PAGE = REPO / "docs/hpc.md"


@dataclass(frozen=True)
class Demo:
    """The released image of the demo as a SIF, in a folder of its own."""

    project: Project
    sif: Path
    tools: str

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line of the page as an ordinary user, beside the SIF and the examples."""
        folder = self.sif.parent
        unconfined = (f"--security-opt={what}=unconfined" for what in ("seccomp", "apparmor"))
        nodes = ("/dev/kfd", "/dev/dri/renderD128")
        argv = [
            *("docker", "run", "--rm", "--init", "--network=none", *unconfined),
            *("--security-opt=systempaths=unconfined", f"--volume={folder}:{folder}"),
            *(("--device=/dev/fuse",) if Path("/dev/fuse").exists() else ()),
            *(f"--device=/dev/null:{node}" for node in nodes),
            *(f"--workdir={folder}", "--env=HOME=/tmp", self.tools),
            *("as-user", "1000", "1000", "", "bash", "-euo", "pipefail", "-c", line),
        ]
        return subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def demo(
    bases: Path, registry_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Demo]:
    project = Project(bases, registry_url)
    (row,) = project.release(CELL)["cells"]
    folder = tmp_path_factory.mktemp("demo")
    folder.chmod(0o755)
    sif = folder / "cpu.sif"
    reference = f"{registry_url}/ourorg/rocm-torch:{row['tags'][-1]}"
    record = project.done("sif", reference, "--output", str(sif))["record"]
    assert record["digest"] == row["digest"]
    for path in (path for path in EXAMPLES.iterdir() if path.is_file()):
        (folder / path.name).write_bytes(path.read_bytes())
    yield Demo(project, sif, project.tools_image)
    sif.unlink()


def lines(start: str) -> list[str]:
    """Return the command lines of the page that are no calls of ours and begin so."""
    fences = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    found = [line for body in fences for line in body.splitlines()]
    assert {line.split()[0] for line in found} == {"apptainer", "sbatch", "RANKS=2"}
    return [line for line in found if line.startswith(start)]


def test_smoke_passes_both_ways_as_an_ordinary_user(demo: Demo) -> None:
    report = demo.project.done("test", "--sif", str(demo.sif), "--host", "plain")
    runs = {run["mode"]: run for run in report["runs"]}
    assert {mode: run["verdict"] for mode, run in runs.items()} == {
        "rocm": "pass",
        "devices": "pass",
    }
    for run in runs.values():
        assert run["findings"] == []
        (user,) = (c for c in run["selftest"]["checks"] if c["id"] == "user-and-caches")
        assert user["status"] == "pass"
        assert user["data"]["uid"] == 1000


def test_packages_in_a_home_and_a_library_path_break_real_torch_and_are_named(
    demo: Demo,
) -> None:
    report = demo.project.done(
        *("test", "--sif", str(demo.sif)),
        *("--host", "hostile-home", "--host", "forced-library-path"),
    )
    runs = {(run["mode"], run["condition"]): run for run in report["runs"]}
    assert report["verdict"] == "pass"
    hidden = [f["summary"] for f in runs["rocm", "hostile-home"]["findings"]]
    assert any("dist-packages/torch/" in said or "numpy" in said for said in hidden)
    codes = {f["code"] for f in runs["rocm", "forced-library-path"]["findings"]}
    assert "PYTHON_BROKEN_BY_HOST" in codes
    assert runs["devices", "hostile-home"]["verdict"] == "pass"


def test_the_line_that_runs_the_self_test_works_as_it_stands(demo: Demo) -> None:
    (line,) = lines("apptainer exec")
    done = demo.shell(line)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "pass" in done.stdout


def test_the_torchrun_example_runs_on_one_node_with_gloo(demo: Demo) -> None:
    (line,) = lines("RANKS=2")
    done = demo.shell(line)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "allreduce over 2 ranks on cpu: right" in done.stdout
