"""Printed lines run as printed: stand-in nodes of GID 992, real Docker, real podman."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import podman_host
import pytest
from podman_host import PodmanHost

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
GPU_GROUP = 992
NODES = ("dev/kfd", "dev/dri/renderD128", "dev/dri/renderD129")
IMAGE = """
FROM {base}
ARG SOURCE_DATE_EPOCH
COPY --from=rootfs / /
RUN /usr/lib/rocm-torch/setup-user rocm 1000
USER rocm
WORKDIR /workspace
ENTRYPOINT ["/usr/local/bin/rocm-torch-entrypoint"]
"""
# Opens the nodes as the image's user, and writes where caches outlive the container.
PROBE = (
    'for n in /dev/kfd /dev/dri/renderD128; do : <>"$n" || exit 7; done;'
    ' [ -c /dev/dri/renderD129 ] && echo both; touch "$HOME/.cache/kept" && id -u'
)
BuildImage = Callable[[str, dict[str, Path], str], str]


@pytest.fixture(scope="module")
def image(debian_base: str, build_image: BuildImage) -> Iterator[str]:
    tag = f"rocm-torch-test/run-lines:{os.getpid()}"
    yield build_image(
        IMAGE.format(base=debian_base), {"rootfs": ROOT / "images/rootfs"}, f"docker.io/{tag}"
    )
    subprocess.run(["docker", "image", "rm", "--force", tag], capture_output=True, check=True)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with stand-ins for the nodes of two GPUs; they behave as /dev/null does."""
    root = tmp_path_factory.mktemp("root")
    for name in NODES:
        node = root / name
        node.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(node, stat.S_IFCHR | 0o660, os.makedev(1, 3))
        node.chmod(0o660)
        os.chown(node, 0, GPU_GROUP)
    return root


def printed(
    target: str, root: Path, image: str, *options: str, before: tuple[str, ...] = ()
) -> str:
    """Return the line that the program prints for this host, in a process of its own."""
    words = ["run", "--print", target, "--device-root", str(root), "--shm-size", "64m", *options]
    done = subprocess.run(
        [*before, sys.executable, "-m", "builder", *words, image, "--", "sh", "-c", PROBE],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ran(line: str, *before: str) -> str:
    """Run a printed line in a shell, as who reads it would."""
    argv = [*before, "sh", "-c", line]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300, cwd="/")
    assert done.returncode == 0, f"{line}{done.stderr}"
    return done.stdout


@pytest.fixture
def cache() -> Iterator[str]:
    name = f"rocm-torch-test-run-{os.getpid()}"
    yield name
    subprocess.run(["docker", "volume", "rm", "-f", name], capture_output=True, check=True)


def test_the_printed_docker_line_lets_the_image_s_user_open_the_nodes_and_keep_its_caches(
    nodes: Path, image: str, cache: str
) -> None:
    line = printed("docker", nodes, image, "--cache", cache)
    assert f"--group-add={GPU_GROUP}" in shlex.split(line)
    assert ran(line) == "both\n1000\n"


def test_without_the_group_of_the_line_the_nodes_do_not_open(
    nodes: Path, image: str, cache: str
) -> None:
    words = shlex.split(printed("docker", nodes, image, "--cache", cache))
    words.remove(f"--group-add={GPU_GROUP}")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode != 0
    assert f"--group-add {GPU_GROUP}" in done.stderr


def test_run_becomes_the_engine_and_ends_with_the_status_of_the_command(
    nodes: Path, image: str
) -> None:
    words = ["run", "--engine", "docker", "--device-root", str(nodes), "--cache", "none", image]
    done = subprocess.run(
        [sys.executable, "-m", "builder", *words, "--", "sh", "-c", "cat; exit 37"],
        input="through",
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (37, "through")


def test_the_printed_compose_file_is_one_that_compose_takes_where_it_is(
    nodes: Path, image: str
) -> None:
    text = printed("compose", nodes, image)
    if subprocess.run(
        ["docker", "compose", "version"], capture_output=True, check=False
    ).returncode:
        pytest.skip("this machine has no docker compose")
    argv = ["docker", "compose", "-f", "-", "config", "--format", "json"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["services"]["torch"]["group_add"] == [str(GPU_GROUP)]


@pytest.fixture(scope="module")
def archive(image: str) -> bytes:
    return subprocess.run(["docker", "save", image], capture_output=True, check=True).stdout


def reachable(root: Path) -> None:
    """Let an ordinary user walk to a folder of pytest's."""
    for folder in (root, *root.parents):
        if folder.is_relative_to(tempfile.gettempdir()):
            folder.chmod(folder.stat().st_mode | 0o011)


@pytest.fixture(params=["rootful", "rootless"])
def podman(
    request: pytest.FixtureRequest, tmp_path: Path, image: str, archive: bytes
) -> Iterator[PodmanHost]:
    if reason := podman_host.why_not():
        pytest.skip(reason)
    reachable(tmp_path)
    groups = f"{podman_host.UID},{GPU_GROUP}" if request.param == "rootless" else ""
    host = podman_host.make(tmp_path, groups)
    host.podman("load", stdin=archive)
    yield host
    host.clean(image)


@pytest.mark.slow
def test_the_printed_podman_line_lets_the_image_s_user_open_the_nodes_and_keep_its_caches(
    nodes: Path, image: str, podman: PodmanHost
) -> None:
    reachable(nodes)
    volume = f"rocm-torch-test-run-{os.getpid()}"
    line = printed("podman", nodes, image, "--cache", volume, before=podman.enter())
    words = shlex.split(line)
    group = "keep-groups" if podman.groups else str(GPU_GROUP)
    assert [word for word in words if word.startswith("--group-add")] == [f"--group-add={group}"]
    assert sum(word.startswith("--device=") for word in words) == len(NODES)
    try:
        assert ran(line, *podman.enter()) == "both\n1000\n"
        words.remove(f"--group-add={group}")
        with pytest.raises(AssertionError, match="/dev/kfd"):
            ran(shlex.join(words), *podman.enter())
    finally:
        podman.podman("volume", "rm", "--force", volume)
