"""What the tests against the real engine share. Nothing is skipped: without an engine they fail."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from projects import Project, copy_repo, tiny_project

from builder.engines.docker_engine import DockerEngine
from builder.engines.layout import Layout
from builder.matrix.lock import Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BASE = "rocm-torch-test/debian:13"
REGISTRY_IMAGE = "rocm-torch-test/registry:local"
# testcontainers would pull an image to clean up after us; we clean up ourselves.
os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Let one worker at a time do what all of them need once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def bases(run_folder: Path) -> Path:
    """Return a working copy of the shipped matrix, with both demo cells locked."""
    root = run_folder / "bases"
    with _turn(run_folder / "bases.lock"):
        if not (root / "matrix.lock").exists():
            shutil.rmtree(root, ignore_errors=True)
            copy_repo(root)
            Project(root).done("lock")
    return root


@pytest.fixture(scope="session")
def debian_base(bases: Path, run_folder: Path) -> str:
    """Return the local name of a minimal Debian 13 image."""
    lock = Lock.from_text((bases / "matrix.lock").read_text("utf-8"), "matrix.lock")
    digest = next(cell.base for name, cell in lock.cells.items() if name.endswith("debian13"))
    engine = DockerEngine()
    with _turn(run_folder / "engine.lock"):
        if engine.image_id(BASE) != digest:
            full = f"docker.io/{BASE}"
            archive = Layout(bases / ".rocm-torch/layout").stream_tar(digest, full)
            engine.load(archive, digest, BASE)
    return BASE


@pytest.fixture(scope="session")
def build_image() -> Callable[[str, dict[str, Path], str], str]:
    """Return a function that builds a Dockerfile's text, with named contexts, into the engine."""

    def build(dockerfile: str, contexts: dict[str, Path], tag: str) -> str:
        named = [f"--build-context={name}={path}" for name, path in contexts.items()]
        argv = ["docker", "buildx", "build", "--load", "--quiet", "--provenance=false", *named]
        result = subprocess.run(
            [*argv, f"--tag={tag}", "-"],
            input=dockerfile,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return tag

    return build


@pytest.fixture(scope="session")
def registry_url(bases: Path, run_folder: Path) -> Iterator[str]:
    """Return the address of a real registry on loopback, this worker's own and empty."""
    from testcontainers.core.container import DockerContainer

    with _turn(run_folder / "registry.lock"):
        if not DockerEngine().has_image(REGISTRY_IMAGE):
            Project(bases).done("registry", "image", "--name", REGISTRY_IMAGE)
    with DockerContainer(REGISTRY_IMAGE).with_exposed_ports(5000) as container:
        yield f"localhost:{container.get_exposed_port(5000)}"


@pytest.fixture
def make_project(
    run_folder: Path, bases: Path, registry_url: str
) -> Iterator[Callable[..., Project]]:
    """Return a function that makes a project of tiny cells; they are removed at the end."""
    made: list[Path] = []

    def make(**options: object) -> Project:
        root = run_folder / "projects" / uuid.uuid4().hex[:12]
        made.append(root)
        return tiny_project(root, bases, registry_url, **options)  # type: ignore[arg-type]

    yield make
    for root in made:
        shutil.rmtree(root, ignore_errors=True)
