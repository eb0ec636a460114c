"""What the real builder makes of rendered values, whatever they look like."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import pytest

from builder.matrix.cells import Base, Cell, Expected
from builder.render.context import Renderer, labels

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

TEMPLATES = Path(__file__).parents[2] / "templates"
RENDERER = Renderer(
    {path.relative_to(TEMPLATES).as_posix(): path.read_text() for path in TEMPLATES.rglob("*.j2")}
)
NAME = "rocm-torch-test/hostile:local"
# One value a field, so that a value that came out in another's place is noticed.
HOSTILE = {
    "id": 'it\'s "$HOME" `id` $(id) ${PATH} {{ cell.id }} {% raw %} {#',
    "lane": '\\ \\\\ \\n \\" ends with \\',
    "torch": "# syntax=x <<EOF && rm; | > * ? é",
    "python": "--mount=type=bind a=b 'c' ${x:-y}",
}
GFX = ("gfx90a;$(id)", "gfx\"942'\\")
PLAIN = Cell(
    id="",
    lane="",
    distro="debian13",
    rocm="6.2.4",
    torch="",
    python="",
    flavour="runtime",
    base=Base("rocm-pytorch", "docker.io/rocm/pytorch:x"),
    expected=Expected("2.6.0", "hip"),
    gfx=GFX,
)


@pytest.fixture
def client() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


def test_labels_and_variables_reach_the_image_as_they_are(client: docker.DockerClient) -> None:
    """Nothing runs: the commands are left out, and the base is an empty one."""
    cell = replace(PLAIN, **HOSTILE)  # type: ignore[arg-type]
    text = RENDERER.render(cell, image="a/b")["Dockerfile"].decode()
    text = text.replace("FROM docker.io/rocm/pytorch:x", "FROM scratch")
    kept, inside = [], False
    for line in text.splitlines():
        inside = line.startswith("RUN ") or (inside and line.startswith("    "))
        kept += [] if inside else [line]
    argv = ["docker", "buildx", "build", "--load", "--quiet", "--provenance=false"]
    built = subprocess.run(
        [*argv, f"--tag={NAME}", "-"],
        input="\n".join(kept),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert built.returncode == 0, built.stderr
    try:
        found = client.images.get(NAME).attrs["Config"]
    finally:
        client.images.remove(NAME, force=True)
    assert found["Labels"] == labels(cell, image="a/b")
    variables = dict(line.split("=", 1) for line in found["Env"])
    assert variables["PYTORCH_ROCM_ARCH"] == ";".join(GFX)
    assert found["User"] == "1000"
