"""``rocm-torch-doctor`` in real containers, as the image's own user, with stand-in nodes."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import pytest

from builder.pipeline.assets import doctor_files

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

ROOTFS = Path(__file__).parents[2] / "images/rootfs"
GPU_GROUP = 992
IMAGE = """
FROM {base}
ARG SOURCE_DATE_EPOCH
RUN apt-get update && apt-get install -y --no-install-recommends python3 && ln -s python3 \
    /usr/bin/python
COPY --from=rootfs / /
COPY --from=doctor / /
RUN /usr/lib/rocm-torch/setup-user rocm 1000
USER rocm
"""
BuildImage = Callable[[str, dict[str, Path], str], str]


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="module")
def image(
    client: docker.DockerClient,
    debian_base: str,
    build_image: BuildImage,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    doctor = tmp_path_factory.mktemp("doctor")
    for name, file in doctor_files().items():
        path = doctor / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
    tag = f"rocm-torch-test/doctor:{os.getpid()}"
    contexts = {"rootfs": ROOTFS, "doctor": doctor}
    yield build_image(IMAGE.format(base=debian_base), contexts, tag)
    client.images.remove(tag, force=True)


def node(folder: Path, name: str, number: tuple[int, int] = (1, 3)) -> str:
    path = folder / name.rpartition("/")[2]
    os.mknod(path, stat.S_IFCHR | 0o660, os.makedev(*number))
    path.chmod(0o660)
    os.chown(path, 0, GPU_GROUP)
    return f"{path}:{name}:rwm"


@pytest.fixture
def nodes(tmp_path: Path) -> list[str]:
    return [node(tmp_path, "/dev/kfd"), node(tmp_path, "/dev/dri/renderD128")]


def doctor(client: docker.DockerClient, image: str, **options: Any) -> tuple[int, dict[str, Any]]:
    container = client.containers.run(
        image, ["rocm-torch-doctor", "--json"], detach=True, **options
    )
    try:
        status = container.wait(timeout=60)["StatusCode"]
        printed = container.logs(stdout=True, stderr=False).decode()
        assert container.logs(stdout=False, stderr=True) == b""
        return status, json.loads(printed)
    finally:
        container.remove(force=True)


def test_a_wrong_group_is_named_with_the_right_number(
    client: docker.DockerClient, image: str, nodes: list[str]
) -> None:
    status, said = doctor(client, image, devices=nodes, group_add=["109"])
    assert (status, said["reached"]) == (2, "passed in, not openable")
    cause = said["findings"][0]
    assert (cause["code"], cause["fix"]) == ("KFD_PERMISSION", f"--group-add {GPU_GROUP}")
    assert "109" in cause["summary"]


def test_its_own_advice_makes_it_pass(
    client: docker.DockerClient, image: str, nodes: list[str]
) -> None:
    status, said = doctor(client, image, devices=nodes, group_add=[str(GPU_GROUP)])
    assert (status, said["reached"]) == (0, "passed in and openable")


def test_without_the_nodes_it_says_that_they_were_not_passed_in(
    client: docker.DockerClient, image: str
) -> None:
    status, said = doctor(client, image)
    assert (status, said["reached"]) == (2, "not passed in")
    assert said["findings"][0]["code"] == "KFD_MISSING"


def test_a_node_without_a_driver_is_refused_and_no_matter_of_groups(
    client: docker.DockerClient, image: str, tmp_path: Path
) -> None:
    dead = node(tmp_path, "/dev/kfd", number=(240, 77))
    status, said = doctor(client, image, devices=[dead], group_add=[str(GPU_GROUP)])
    assert (status, said["reached"]) == (2, "openable by mode, refused by the driver")
    assert said["findings"][0]["code"] == "KFD_OPEN_ENXIO"
    assert "group-add" not in json.dumps(said)
