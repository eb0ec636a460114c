"""AMD's images have torch in four places; images of ours are built on a stand-in for each.

The stand-ins are small: Debian's Python and a torch of a few files, pushed to a real registry under
the names that AMD publishes, and reached through `mirrors:` as at a site.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import docker
import pytest
import yaml
from projects import REPO, copy_repo

from builder.engines.docker_engine import DockerEngine
from builder.engines.layout import Layout
from builder.engines.process import ProcessRunner
from builder.errors import CouldNotError
from builder.matrix.cells import Base, Cell, Expected, Interpreter
from builder.matrix.load import read_matrix
from builder.oci import Digest
from builder.pipeline import session as sessions
from builder.pipeline.build import build
from builder.pipeline.lock import lock_cells
from builder.pipeline.session import Session
from builder.pipeline.workspace import Tools, Workspace
from builder.report.progress import Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.engine

PREFIX = "hub"
TORCH = "2.9.1+rocm7.2.1"
HIP = "7.2.53211-e1a6bc5663"
PYTHON = "FROM {base}\nRUN apt-get update && apt-get install -y --no-install-recommends python3\n"
# Puts the stand-in where the interpreter looks, with what pip would have written beside it.
GIVE = """\
RUN --mount=type=bind,from=torch,target=/mnt \
    site="$({python} -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" && \
    mkdir -p "$site/torch" "$site/torch.dist-info" && \
    cp /mnt/__init__.py "$site/torch/" && \
    printf '__version__ = "{version}"\\nhip = {hip}\\ncuda = None\\n' \
      > "$site/torch/version.py" && \
    printf 'Metadata-Version: 2.1\\nName: torch\\nVersion: {version}\\n' > \
      "$site/torch.dist-info/METADATA"
"""
VENV = "RUN python3 -m venv --without-pip {folder}\n"
ROCM = "RUN mkdir -p /opt/rocm/bin && touch /opt/rocm/bin/hipcc && chmod +x /opt/rocm/bin/hipcc\n"


@dataclass(frozen=True)
class Place:
    """A place of torch: the tag that AMD has for such an image, how it is made, who has torch."""

    tag: str
    steps: str
    python: str


LAYOUTS = {
    "conda": Place(
        "rocm6.4_ubuntu24.04_py3.12_pytorch_release_2.6.0",
        VENV.format(folder="/opt/conda")
        + VENV.format(folder="/opt/conda/envs/py_3.12")
        + ROCM
        + "ENV PATH=/opt/conda/envs/py_3.12/bin:/opt/conda/bin:$PATH\n",
        "/opt/conda/envs/py_3.12/bin/python",
    ),
    "venv": Place(
        "rocm7.2_ubuntu24.04_py3.12_pytorch_release_2.9.1",
        VENV.format(folder="/opt/venv") + ROCM + "RUN useradd -u 1000 -m -G video ubuntu\n",
        "/opt/venv/bin/python",
    ),
    "venv-with-rocm-inside": Place(
        "rocm10.0_ubuntu24.04_py3.12_pytorch_release_2.12.0",
        VENV.format(folder="/opt/venv")
        + "RUN mkdir /opt/venv/lib/python3.13/site-packages/_rocm_sdk_core\n",
        "/opt/venv/bin/python",
    ),
    "system": Place("rocm10.1.0_ubuntu24.04_py3.12_pytorch_release_2.13.0", "", "/usr/bin/python3"),
}
CPU = "rocm6.3_ubuntu24.04_py3.12_pytorch_release_2.4.0"
TWO = "rocm7.1_ubuntu24.04_py3.12_pytorch_release_2.8.0"
NONE = "rocm7.0_ubuntu24.04_py3.12_pytorch_release_2.7.1"


def give(python: str, *, version: str = TORCH, hip: str | None = HIP) -> str:
    return GIVE.format(python=python, version=version, hip=f'"{hip}"' if hip else None)


def cell_on(tag: str) -> Cell:
    """Return a cell FROM one of AMD's tags, as the facts will make it."""
    name = tag.replace("_", "-").replace("pytorch-release-", "torch")
    return Cell(
        id=name,
        lane="layouts",
        distro="debian13",
        rocm="7.2.1",
        torch="2.9.1",
        python="3.13",
        flavour="runtime",
        base=Base("rocm-pytorch", f"docker.io/rocm/pytorch:{tag}"),
        expected=Expected(TORCH, "hip", HIP),
        gfx=("gfx90a", "gfx942"),
        interpreter=Interpreter("base"),
    )


class Site:
    """A working copy whose cells are made by hand, at a site with a mirror of Docker Hub."""

    def __init__(self, root: Path, registry: str) -> None:
        copy_repo(root)
        for folder in (root / "images").glob("cpu-*"):
            shutil.rmtree(folder)
        settings = {"mirrors": {"docker.io": f"{registry}/{PREFIX}"}}
        (root / "site.yaml").write_text(yaml.safe_dump(settings), "utf-8")
        self.root = root
        self.cells: tuple[Cell, ...] = ()

    def session(self) -> Session:
        """Return a run of its own: what a session has read it does not read again."""
        return Session(
            workspace=Workspace(self.root),
            tools=Tools(ProcessRunner(), lambda: datetime.now(UTC), lambda: 0.0, Silent()),
            lock_file=self.root / "matrix.lock",
            matrix_file=self.root / "matrix.yaml",
            site_file=self.root / "site.yaml",
        )

    def build(self, cell: Cell) -> str:
        """Lock through the mirror, build, load into the engine; return the image's local name."""
        self.cells = (*self.cells, cell)
        lock_cells(self.session(), (cell,))
        session = self.session()
        assert session.lock.cells[cell.id].origin == "registry"
        record = build(session, session.job(cell))
        name = f"rocm-torch-test/layouts:{cell.id}"
        digest = Digest(record.digest)
        full = f"docker.io/{name}"  # the engine keeps names as they stand and looks up full ones
        archive = Layout(session.workspace.layout).stream_tar(digest, full)
        DockerEngine().load(archive, digest, name)
        return name


@pytest.fixture(scope="module")
def site(run_folder: Path, registry_url: str) -> Iterator[Site]:
    site = Site(run_folder / "projects" / "layouts", registry_url)
    shipped = read_matrix

    def by_hand(*arguments: Any) -> Any:
        return replace(shipped(*arguments), cells=site.cells)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "read_matrix", by_hand)
        yield site
    shutil.rmtree(site.root, ignore_errors=True)


@pytest.fixture(scope="module")
def publish(
    debian_base: str,
    registry_url: str,
    build_image: Callable[[str, dict[str, Path], str], str],
) -> Iterator[Callable[[str, str], None]]:
    """Return a function that pushes a stand-in of these steps under a tag of AMD's."""
    made: list[str] = []
    standin = {"torch": REPO / "tests/engine/standin/torch"}

    def push(tag: str, steps: str) -> None:
        name = f"{registry_url}/{PREFIX}/rocm/pytorch:{tag}"
        made.append(build_image(PYTHON.format(base=debian_base) + steps, standin, name))
        subprocess.run(["docker", "push", "--quiet", name], check=True, timeout=300)

    yield push
    client = docker.from_env()
    for name in made:
        client.images.remove(name, force=True)
    client.close()


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    client = docker.from_env(timeout=300)
    yield client
    client.close()


@pytest.fixture(scope="module", params=sorted(LAYOUTS))
def built(
    request: pytest.FixtureRequest,
    site: Site,
    publish: Callable[[str, str], None],
    client: docker.DockerClient,
) -> Iterator[tuple[Place, str]]:
    layout = LAYOUTS[request.param]
    publish(layout.tag, layout.steps + give(layout.python))
    name = site.build(cell_on(layout.tag))
    yield layout, name
    client.images.remove(name, force=True)


def said(client: docker.DockerClient, image: str, *words: str) -> str:
    """Start the program itself, as `kubectl exec` and Apptainer do: no entrypoint runs."""
    output = client.containers.run(image, list(words[1:]), entrypoint=[words[0]], remove=True)
    assert isinstance(output, bytes)
    return output.decode()


def selftest(client: docker.DockerClient, image: str) -> dict[str, dict[str, Any]]:
    container = client.containers.run(
        image, ["rocm-torch-selftest", "--level", "smoke", "--json"], detach=True
    )
    try:
        code = container.wait(timeout=300)["StatusCode"]
        text = container.logs(stdout=True, stderr=False)
        assert text, (code, container.logs())
        document = json.loads(text)
    finally:
        container.remove(force=True)
    return {check["id"]: check for check in document["checks"]}


def test_python_is_the_one_that_has_torch_without_entrypoint_or_activation(
    built: tuple[Place, str], client: docker.DockerClient
) -> None:
    layout, image = built
    ask = "import sys, torch; print(sys.executable, torch.__version__)"
    for name in ("python", "python3"):
        assert said(client, image, name, "-c", ask) == f"{layout.python} {TORCH}\n"
    script = "#!/usr/bin/env python3\nimport torch; print(torch.version.hip)\n"
    run_script = f"printf '%s' '{script}' > /tmp/x && chmod +x /tmp/x && /tmp/x"
    assert said(client, image, "sh", "-c", run_script) == f"{HIP}\n"


def test_the_image_records_its_interpreter_and_pins_torch(
    built: tuple[Place, str], client: docker.DockerClient
) -> None:
    layout, image = built
    folder = "/usr/share/rocm-torch"
    assert said(client, image, "cat", f"{folder}/python") == f"{layout.python}\n"
    assert said(client, image, "cat", f"{folder}/constraints.txt") == f"torch=={TORCH}\n"


def test_the_user_is_ours_whoever_had_its_number(
    built: tuple[Place, str], client: docker.DockerClient
) -> None:
    _, image = built
    assert said(client, image, "id") == "uid=1000(rocm) gid=1000(rocm) groups=1000(rocm)\n"
    assert said(client, image, "sh", "-c", "touch ~/x /workspace/x; echo ~").strip() == "/home/rocm"


def test_the_self_test_finds_torch_its_backend_and_one_python_in_all_shells(
    built: tuple[Place, str], client: docker.DockerClient
) -> None:
    layout, image = built
    checks = selftest(client, image)
    for name in ("import", "version", "shells", "user-and-caches"):
        assert checks[name]["status"] == "pass", checks[name]
    assert checks["version"]["data"]["found"]["backend"] == "hip"
    assert layout.python in checks["shells"]["detail"]


def test_from_keeps_the_name_that_amd_gave(built: tuple[Place, str], site: Site) -> None:
    layout, _ = built
    session = site.session()
    (cell,) = [one for one in session.matrix.cells if one.base.ref.endswith(layout.tag)]
    text = session.context(cell)["Dockerfile"].decode()
    assert f"FROM docker.io/rocm/pytorch:{layout.tag}\n" in text
    assert "localhost" not in text


def test_a_cpu_build_of_torch_under_a_rocm_cell_fails_the_check_of_its_backend(
    site: Site, publish: Callable[[str, str], None], client: docker.DockerClient
) -> None:
    publish(CPU, VENV.format(folder="/opt/venv") + give("/opt/venv/bin/python", hip=None))
    image = site.build(cell_on(CPU))
    try:
        version = selftest(client, image)["version"]
    finally:
        client.images.remove(image, force=True)
    assert version["status"] == "fail"
    assert "backend is 'cpu' and the cell expects 'hip'" in version["detail"]


@pytest.mark.parametrize(
    ("tag", "steps", "words"),
    [
        (
            NONE,
            VENV.format(folder="/opt/venv"),
            ("no interpreter has torch", "/opt/venv/bin/python"),
        ),
        (
            TWO,
            VENV.format(folder="/opt/venv") + give("/opt/venv/bin/python") + give("python3"),
            ("more than one interpreter", "/opt/venv/bin/python", "/usr/bin/python3"),
        ),
    ],
    ids=["none", "two"],
)
def test_no_torch_and_two_of_them_stop_the_build_by_name(
    site: Site, publish: Callable[[str, str], None], tag: str, steps: str, words: tuple[str, ...]
) -> None:
    publish(tag, steps)
    with pytest.raises(CouldNotError) as caught:
        site.build(cell_on(tag))
    told = str(caught.value)
    assert all(word in told for word in words), told
