"""A cell of wheels on Debian: locked from indexes on loopback or a folder, and built from the lock.

The wheels are stand-ins of a few kB with the names and tags of the real ones.
"""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import docker
import pytest
import yaml
from projects import PYPI, WHEEL_INDEX, Project, add_wheel_lane, tiny_project, wheel_facts
from wheel_server import WheelServer, other_wheels, serving_wheels, torch_wheels

from builder.engines.docker_engine import DockerEngine
from builder.engines.layout import Layout
from builder.engines.process import ProcessRunner
from builder.errors import CouldNotError
from builder.matrix.lock import Lock
from builder.oci import Digest
from builder.pipeline.build import build
from builder.pipeline.session import Session
from builder.pipeline.workspace import Tools, Workspace
from builder.report.progress import Silent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.matrix.lock import LockedCell
    from builder.report.records import BuildRecord

pytestmark = pytest.mark.engine

CELL = "rocm6.2.4-torch2.7.1-py313-debian13"
TORCH = "2.7.1+rocm6.2.4"
TORCH_FILE = f"torch-{TORCH}-cp313-cp313-linux_x86_64.whl"
NAME = f"rocm-torch-test/wheels:{CELL}"


@pytest.fixture(scope="module")
def server() -> Iterator[WheelServer]:
    with serving_wheels({"torch": torch_wheels(), "all": other_wheels()}) as running:
        yield running


@pytest.fixture(scope="module")
def project(run_folder: Path, bases: Path, server: WheelServer) -> Iterator[Project]:
    root = run_folder / "projects" / "wheels"
    project = tiny_project(root, bases, None)
    add_wheel_lane(project)
    settings(project, server, "simple")
    yield project
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def built(project: Project) -> BuildRecord:
    """Lock from the simple index, and build."""
    project.done("lock", CELL)
    return build_here(project)


@pytest.fixture(scope="module")
def house(project: Project) -> Path:
    folder = project.root / "house"
    folder.mkdir()
    for file, content in (torch_wheels() | other_wheels()).items():
        (folder / file).write_bytes(content)
    return folder


def settings(project: Project, server: WheelServer, style: str) -> None:
    indexes = {WHEEL_INDEX: f"{server.url}/torch/{style}", PYPI: f"{server.url}/all/simple"}
    (project.root / "site.yaml").write_text(yaml.safe_dump({"indexes": indexes}), "utf-8")


def session_of(project: Project, lock: Path | None = None, house: Path | None = None) -> Session:
    """Return a run of its own. Builds are called by it: a real wheel cell wants 90 GiB of room."""
    return Session(
        Workspace(project.root),
        Tools(ProcessRunner(), lambda: datetime.now(UTC), time.monotonic, Silent()),
        lock or project.root / "matrix.lock",
        project.root / "matrix.yaml",
        facts_folder=project.facts,
        site_file=project.root / "site.yaml",
        wheelhouse=house,
    )


def build_here(
    project: Project, lock: Path | None = None, house: Path | None = None, *, force: bool = False
) -> BuildRecord:
    session = session_of(project, lock, house)
    return build(session, session.job(session.cell(CELL)), force=force)


def locked(project: Project, lock: Path | None = None) -> LockedCell:
    path = lock or project.root / "matrix.lock"
    return Lock.from_text(path.read_text("utf-8"), path.name).cells[CELL]


def test_the_lock_names_each_file_and_nothing_of_the_site(
    built: BuildRecord, project: Project, server: WheelServer
) -> None:
    found = {wheel.name: wheel for wheel in locked(project).wheels}
    assert found["torch"].file == TORCH_FILE
    assert {"pip", "filelock", "torchvision", "torchaudio", "pytorch-triton-rocm"} < set(found)
    assert server.url not in (project.root / "matrix.lock").read_text("utf-8")


def test_the_image_has_the_locked_wheels_and_pip_in_a_python_of_its_own(
    built: BuildRecord, project: Project
) -> None:
    digest = Digest(built.digest)
    archive = Layout(project.root / ".rocm-torch/layout").stream_tar(digest, f"docker.io/{NAME}")
    DockerEngine().load(archive, digest, NAME)
    client = docker.from_env(timeout=300)
    script = (
        "import json, sys, torch, importlib.metadata as m; print(json.dumps([sys.prefix,"
        " torch.__version__, torch.version.hip, sorted(d.name for d in m.distributions())]))"
    )
    try:
        said = client.containers.run(NAME, ["-c", script], entrypoint=["python"], remove=True)
        pins = client.containers.run(
            NAME, ["/usr/share/rocm-torch/constraints.txt"], entrypoint=["cat"], remove=True
        )
    finally:
        client.images.remove(NAME, force=True)
        client.close()
    prefix, version, hip, names = json.loads(said)
    assert (prefix, version, hip) == ("/opt/venv", TORCH, "6.2.41134")
    assert {"pip", "torch", "filelock"} < set(names)
    assert f"torch=={TORCH}\n" in pins.decode()


@pytest.mark.parametrize(("style", "form"), [("simple", "json"), ("flat", "html")])
def test_indexes_of_every_form_give_the_same_image(
    built: BuildRecord,
    project: Project,
    server: WheelServer,
    tmp_path: Path,
    style: str,
    form: str,
) -> None:
    lock = tmp_path / "other.lock"
    server.form = form
    settings(project, server, style)
    wheel_facts(project, style)
    shutil.copyfile(project.root / "matrix.lock", lock)
    try:
        project.done("--lock", str(lock), "lock", "--update", CELL)
        record = build_here(project, lock)
    finally:
        server.form = "html"
        settings(project, server, "simple")
        wheel_facts(project, "simple")
    assert record == built  # nothing had to be built


def test_a_folder_of_wheels_gives_the_same_image_and_asks_no_index(
    built: BuildRecord,
    project: Project,
    server: WheelServer,
    house: Path,
    tmp_path: Path,
) -> None:
    lock = tmp_path / "other.lock"
    shutil.copyfile(project.root / "matrix.lock", lock)
    shutil.rmtree(project.root / ".rocm-torch/wheels")
    asked = len(server.calls)
    options = ("--lock", str(lock), "--wheelhouse", str(house))
    project.done(*options, "lock", "--update", CELL)
    record = build_here(project, lock, house, force=True)
    assert {wheel.url for wheel in locked(project, lock).wheels} == {None}
    assert record.digest == built.digest
    assert len(server.calls) == asked


def test_a_wheel_that_vanished_stops_a_build_by_name(
    built: BuildRecord, project: Project, server: WheelServer
) -> None:
    shutil.rmtree(project.root / ".rocm-torch/wheels", ignore_errors=True)
    gone = server.indexes["torch"].pop(TORCH_FILE)
    try:
        with pytest.raises(CouldNotError, match="WHEEL_GONE") as caught:
            build_here(project, force=True)
        assert TORCH_FILE in caught.value.problems[0].what
    finally:
        server.indexes["torch"][TORCH_FILE] = gone
