"""SIF files of tiny images, by a real Apptainer: made by digest, whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from projects import IMAGE, REPO

from builder.engines.docker_engine import DockerEngine
from builder.engines.layout import Layout
from builder.oci import Digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from projects import Project

pytestmark = pytest.mark.engine


@pytest.fixture
def project(make_project: Callable[..., Project]) -> Project:
    return make_project()


def inspected(project: Project, sif: Path) -> dict[str, Any]:
    """Ask Apptainer itself for the labels of a SIF."""
    words = ("apptainer", "inspect", "--json", "--labels", str(sif))
    said = in_tools(project, sif.parent, *words)
    labels: dict[str, Any] = json.loads(said)["data"]["attributes"]["labels"]
    return labels


def in_tools(project: Project, folder: Path, *words: str) -> str:
    """Run a program of the tools image, which a conversion has made, and return what it says."""
    done = subprocess.run(
        ["docker", "run", "--rm", f"--volume={folder}:{folder}", project.tools_image, *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def tree(project: Project, sif: Path) -> list[str]:
    """Return the file tree of a SIF: mode, owner, size, path; without times and what has them."""
    script = (
        "set -e; cd /tmp; n=$(apptainer sif list SIF_FILE | awk -F'|' '/Squashfs/ {print $1}');"
        " apptainer sif dump $n SIF_FILE >/tmp/fs; unsquashfs -lln /tmp/fs"
    )
    lines = in_tools(
        project, sif.parent, "sh", "-c", script.replace("SIF_FILE", str(sif))
    ).splitlines()
    kept = []
    for line in lines:
        words = line.split()
        if len(words) >= 6 and not words[5].endswith("/.singularity.d/labels.json"):
            kept.append(" ".join((*words[:3], *words[5:])))
    return kept


def test_a_cell_becomes_a_sif_that_names_its_digest_and_axes_and_a_second_call_changes_nothing(
    project: Project,
) -> None:
    project.done("build")
    (entry,) = project.done("matrix")["cells"]
    record = project.done("sif", entry["id"])["record"]
    sif = Path(record["path"])
    labels = inspected(project, sif)
    assert labels["io.rocm-torch.image"] == record["digest"]
    assert labels["io.rocm-torch.cell"] == entry["id"]
    assert labels["io.rocm-torch.torch"] == entry["torch"]
    assert labels["io.rocm-torch.distro"] == entry["distro"]
    assert Digest.of(sif.read_bytes()) == record["file"]
    assert [path.name for path in sif.parent.iterdir()] == [sif.name]
    assert project.done("sif", entry["id"])["record"] == record
    again = sif.with_name("again.sif")
    other = project.done("sif", entry["id"], "--output", str(again))["record"]
    assert other["digest"] == record["digest"]
    first, second = tree(project, sif), tree(project, again)
    assert first == second
    assert any(line.endswith("/usr/local/bin/rocm-torch-selftest") for line in first)
    stable = {key: value for key, value in labels.items() if "build-date" not in key}
    assert {k: v for k, v in inspected(project, again).items() if "build-date" not in k} == stable


def test_a_tag_in_a_registry_is_resolved_to_its_digest_first(project: Project) -> None:
    (row,) = project.release()["cells"]
    for blob in (project.root / ".rocm-torch/layout/blobs/sha256").iterdir():
        blob.unlink()
    reference = f"{project.registry}/{IMAGE}:{row['tags'][-1]}"
    output = project.root / "here.sif"
    record = project.done("sif", reference, "--output", str(output))["record"]
    assert record["digest"] == row["digest"]
    assert inspected(project, output)["io.rocm-torch.image"] == row["digest"]


def test_a_killed_conversion_leaves_no_half_file_and_the_next_one_makes_it(
    project: Project,
) -> None:
    project.done("build")
    output = project.root / "out" / "cell.sif"
    output.parent.mkdir()
    argv = [sys.executable, "-m", "builder", "--project", str(project.root), "--facts"]
    words = [str(project.facts), "--progress", "json", "sif", "lane=tiny", "--output", str(output)]
    process = subprocess.Popen(
        [*argv, *words],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "Creating SIF file" in line:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    assert not output.exists()
    record = project.done("sif", "lane=tiny", "--output", str(output))["record"]
    assert Digest.of(output.read_bytes()) == record["file"]
    deadline = time.monotonic() + 60
    while [path.name for path in output.parent.iterdir()] != [output.name]:
        assert time.monotonic() < deadline, sorted(output.parent.iterdir())
        os.sched_yield()


def test_an_interrupted_conversion_takes_its_files_and_its_container_away(
    project: Project,
) -> None:
    project.done("build")
    output = project.root / "out" / "cell.sif"
    argv = [sys.executable, "-m", "builder", "--project", str(project.root), "--facts"]
    words = [str(project.facts), "--progress", "json", "sif", "lane=tiny", "--output", str(output)]
    process = subprocess.Popen(
        [*argv, *words],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "Extracting OCI image" in line:
            break
    process.send_signal(signal.SIGINT)
    process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 130
    assert list(output.parent.iterdir()) == []
    label = f"io.rocm-torch.workspace={project.root}"
    assert DockerEngine().remove_leftovers([label]) == 0


def test_an_image_with_a_damaged_layer_is_refused_and_no_file_appears(project: Project) -> None:
    record = project.done("build")["records"][0]
    layout = Layout(project.root / ".rocm-torch/layout")
    path = layout.blob_path(layout.manifest(Digest(record["digest"])).layers[-1].digest)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()  # it may be a link to a blob that others read
    path.write_bytes(content)
    output = project.root / "out" / "cell.sif"
    result = project.call("sif", "lane=tiny", "--output", str(output))
    assert result.returncode == 2
    assert "BLOB_DAMAGED" in result.stderr
    assert list(output.parent.iterdir()) == []


def test_a_folder_in_memory_that_the_user_named_is_refused_before_the_start(
    project: Project, tmp_path: Path
) -> None:
    project.done("build")
    result = project.call(
        "sif", "lane=tiny", APPTAINER_TMPDIR="/dev/shm", SINGULARITY_TEMPDIR=str(tmp_path)
    )
    assert result.returncode == 1
    assert "SIF_TMP_TOO_SMALL" in result.stderr
    assert "/dev/shm is a tmpfs" in result.stderr
    assert "SINGULARITY_TEMPDIR is not a known name" in result.stderr
