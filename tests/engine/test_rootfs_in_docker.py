"""The files of every image, at work in real containers of a small Debian image."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker.models.containers import Container

pytestmark = pytest.mark.engine

ROOTFS = Path(__file__).parents[2] / "images/rootfs"
GPU_GROUP = 992
STATE = "import json, os; print(json.dumps(dict(os.environ)))"
PYTHON_IMAGE = """
FROM {base}
ARG SOURCE_DATE_EPOCH
RUN apt-get update && apt-get install -y --no-install-recommends python3 && ln -s python3 \
    /usr/bin/python
COPY --from=rootfs / /
RUN /usr/lib/rocm-torch/setup-user rocm 1000 && python /usr/lib/rocm-torch/hook-python
USER rocm
WORKDIR /workspace
ENTRYPOINT ["/usr/local/bin/rocm-torch-entrypoint"]
"""
USER_IMAGE = """
FROM {base}
ARG SOURCE_DATE_EPOCH
COPY --from=rootfs / /
RUN {before} && /usr/lib/rocm-torch/setup-user rocm 1000
"""
BuildImage = Callable[[str, dict[str, Path], str], str]


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="module")
def image(client: docker.DockerClient, debian_base: str, build_image: BuildImage) -> Iterator[str]:
    tag = f"rocm-torch-test/rootfs:{os.getpid()}"
    yield build_image(PYTHON_IMAGE.format(base=debian_base), {"rootfs": ROOTFS}, tag)
    client.images.remove(tag, force=True)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Stand-ins for the device nodes of a GPU; they behave as /dev/null does."""
    folder = tmp_path_factory.mktemp("nodes")
    mapped = []
    for name, target in (("kfd", "/dev/kfd"), ("renderD128", "/dev/dri/renderD128")):
        node = folder / name
        os.mknod(node, stat.S_IFCHR | 0o660, os.makedev(1, 3))
        node.chmod(0o660)
        os.chown(node, 0, GPU_GROUP)
        mapped.append(f"{node}:{target}:rwm")
    return mapped


def keep_running(client: docker.DockerClient, image: str, **options: Any) -> Container:
    return client.containers.run(image, ["sleep", "600"], detach=True, init=True, **options)


@pytest.fixture(scope="module")
def container(client: docker.DockerClient, image: str, nodes: list[str]) -> Iterator[Container]:
    """A container with the nodes, whose user lacks the group; most tests run in it."""
    container = keep_running(client, image, devices=nodes)
    yield container
    container.remove(force=True)


@pytest.fixture(scope="module")
def read_only(client: docker.DockerClient, image: str) -> Iterator[Container]:
    container = keep_running(client, image, read_only=True, tmpfs={"/tmp": "size=1m,mode=1777"})
    yield container
    container.remove(force=True)


def execute(container: Container, *argv: str, **options: Any) -> str:
    code, output = container.exec_run(list(argv), **options)
    assert code == 0, output
    assert isinstance(output, bytes)
    return output.decode()


def caches(container: Container, *before: str, **options: Any) -> dict[str, str]:
    variables: dict[str, str] = json.loads(
        execute(container, *before, "/usr/bin/python", "-I", "-c", STATE, **options)
    )
    base = variables["ROCM_TORCH_CACHES"]
    if base != "unavailable":
        assert variables["TRITON_CACHE_DIR"] == f"{base}/triton"
        assert execute(container, "stat", "-c", "%a", base, **options) == "700\n"
    return variables


def run(client: docker.DockerClient, image: str, *argv: str, **options: Any) -> tuple[str, str]:
    """Run a container to its end; return what it wrote to stdout and stderr."""
    container = client.containers.run(image, list(argv), detach=True, **options)
    try:
        assert container.wait(timeout=60)["StatusCode"] == 0, container.logs()
        return (
            container.logs(stdout=True, stderr=False).decode(),
            container.logs(stdout=False, stderr=True).decode(),
        )
    finally:
        container.remove(force=True)


def said_on_start(container: Container) -> str:
    """Wait for the first line on standard error: a container that runs may not have spoken yet."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        said: str = container.logs(stdout=False, stderr=True).decode()
        if said.endswith("\n"):
            return said
    raise AssertionError("the entrypoint said nothing")


OPEN_BOTH = ("sh", "-c", ": <>/dev/kfd && : <>/dev/dri/renderD128 && id -u")


def test_with_the_group_the_user_opens_the_nodes_and_nothing_is_said(
    client: docker.DockerClient, image: str, nodes: list[str]
) -> None:
    options = {"devices": nodes, "group_add": [str(GPU_GROUP)]}
    assert run(client, image, *OPEN_BOTH, **options) == ("1000\n", "")


def test_without_the_group_the_entrypoint_names_it_and_runs_the_command(
    container: Container,
) -> None:
    said = said_on_start(container)
    assert said.count("\n") == 1
    assert said.endswith(f"Start the container with: --group-add {GPU_GROUP}\n")
    assert "cannot open /dev/kfd (uid 0, gid 992, mode " in said
    assert "this process has uid 1000, groups 1000." in said
    container.reload()
    assert container.status == "running"


def test_root_opens_the_nodes_and_nothing_is_said(
    client: docker.DockerClient, image: str, nodes: list[str]
) -> None:
    assert run(client, image, *OPEN_BOTH, devices=nodes, user="0") == ("0\n", "")


def test_a_node_that_the_device_cgroup_refuses_is_no_matter_of_groups(
    container: Container,
) -> None:
    program = (
        "mkdir -p /tmp/root/dev && mknod /tmp/root/dev/kfd c 1 1 && chmod 666 /tmp/root/dev/kfd"
        " && exec rocm-torch-entrypoint true"
    )
    said = execute(
        container,
        *("sh", "-c", program),
        user="0",
        environment={"ROCM_TORCH_DEVICE_ROOT": "/tmp/root"},
    )
    assert "Operation not permitted" in said
    assert "--device=/dev/kfd" in said
    assert "--group-add" not in said


def test_the_exit_code_of_the_command_is_that_of_the_container(
    client: docker.DockerClient, image: str
) -> None:
    container = client.containers.run(image, ["sh", "-c", "exit 37"], detach=True)
    try:
        assert container.wait(timeout=60)["StatusCode"] == 37
    finally:
        container.remove(force=True)


def test_a_signal_reaches_the_command(client: docker.DockerClient, image: str) -> None:
    trap = "trap 'exit 21' TERM; echo ready; while :; do sleep 0.1; done"
    container = client.containers.run(image, ["sh", "-c", trap], detach=True)
    try:
        deadline = time.monotonic() + 60
        while b"ready" not in container.logs() and time.monotonic() < deadline:
            pass
        container.kill("SIGTERM")
        assert container.wait(timeout=60)["StatusCode"] == 21
    finally:
        container.remove(force=True)


def test_without_a_command_there_is_a_shell(client: docker.DockerClient, image: str) -> None:
    assert run(client, image) == ("", "")


HOME_CACHES = "/home/rocm/.cache/rocm-torch"


def test_exec_as_the_user_of_the_image_finds_caches_in_the_home(container: Container) -> None:
    assert caches(container)["ROCM_TORCH_CACHES"] == HOME_CACHES


def test_an_empty_environment_is_enough(container: Container) -> None:
    assert caches(container, "env", "-i")["ROCM_TORCH_CACHES"] == HOME_CACHES


def test_an_unknown_user_gets_a_directory_of_its_own(container: Container) -> None:
    assert caches(container, user="12345")["ROCM_TORCH_CACHES"] == "/tmp/rocm-torch-12345"
    assert (
        caches(container, "env", "-i", user="12345:0")["ROCM_TORCH_CACHES"]
        == "/tmp/rocm-torch-12345"
    )


def test_root_gets_a_directory_of_its_own(container: Container) -> None:
    assert caches(container, user="0")["ROCM_TORCH_CACHES"] == "/root/.cache/rocm-torch"


@pytest.mark.parametrize(
    ("uid", "trap"),
    [
        ("20001", "mkdir -m 777 /tmp/rocm-torch-20001"),
        ("20002", "mkdir -m 777 /tmp/t && ln -s /tmp/t /tmp/rocm-torch-20002"),
    ],
)
def test_what_another_user_left_in_tmp_is_not_used(
    uid: str, trap: str, container: Container
) -> None:
    execute(container, "sh", "-c", trap, user="12345")
    assert caches(container, user=uid)["ROCM_TORCH_CACHES"] == f"/var/tmp/rocm-torch-{uid}"


def test_a_process_of_another_user_leaves_the_inherited_directory(container: Container) -> None:
    inner = f"setpriv --reuid 30001 --clear-groups python -c '{STATE}'"
    program = f'import subprocess; subprocess.run(["sh", "-c", """{inner}"""], check=True)'
    variables = json.loads(execute(container, "python", "-c", program, user="0"))
    assert variables["ROCM_TORCH_CACHES"] == "/tmp/rocm-torch-30001"
    assert variables["HF_HOME"] == "/tmp/rocm-torch-30001/huggingface"


def test_a_run_without_the_entrypoint_has_caches_too(
    client: docker.DockerClient, image: str
) -> None:
    stdout, _ = run(client, image, "-c", STATE, entrypoint=["python"])
    assert json.loads(stdout)["ROCM_TORCH_CACHES"] == HOME_CACHES


@pytest.mark.parametrize("user", ["rocm", "12345", "0"])
def test_a_read_only_root_leaves_tmp(user: str, read_only: Container) -> None:
    uid = {"rocm": "1000"}.get(user, user)
    base = f"/tmp/rocm-torch-{uid}"
    assert caches(read_only, user=user)["ROCM_TORCH_CACHES"] == base
    assert caches(read_only, "env", "-i", user=user)["ROCM_TORCH_CACHES"] == base


def test_a_full_file_system_is_passed_over(client: docker.DockerClient, image: str) -> None:
    container = keep_running(client, image, read_only=True, tmpfs={"/tmp": "size=64k,mode=1777"})
    try:
        execute(container, "sh", "-c", "cat /dev/zero >/tmp/full 2>/dev/null || true")
        assert caches(container)["ROCM_TORCH_CACHES"] == "/dev/shm/rocm-torch-1000"
    finally:
        container.remove(force=True)


def test_where_nothing_can_be_written_python_starts_and_says_unavailable(
    client: docker.DockerClient, image: str
) -> None:
    stdout, stderr = run(
        client, image, "python", "-c", STATE, read_only=True, ipc_mode="none", user="12345"
    )
    variables = json.loads(stdout)
    assert variables["ROCM_TORCH_CACHES"] == "unavailable"
    assert "HF_HOME" not in variables
    assert stderr == ""


def test_the_selftest_is_not_misled_by_the_current_directory(container: Container) -> None:
    program = "cd /tmp && echo 'raise SystemExit(99)' >json.py && rocm-torch-selftest --help"
    code, output = container.exec_run(["sh", "-c", program], user="12345")
    # The test program itself is not in this small image: what counts is who was asked.
    assert code == 1
    assert b"No module named rocm_torch_selftest" in output


@pytest.mark.parametrize(
    "before",
    [
        "true",
        "useradd -m -u 1000 -G sudo ubuntu",
        "groupadd -g 1000 staff2",
        "useradd -m -u 1001 rocm",
    ],
    ids=["nobody is 1000", "ubuntu is 1000", "a group is 1000", "rocm is 1001"],
)
def test_the_user_is_the_same_on_each_base(
    before: str, client: docker.DockerClient, debian_base: str, build_image: BuildImage
) -> None:
    tag = f"rocm-torch-test/user:{os.getpid()}"
    build_image(USER_IMAGE.format(base=debian_base, before=before), {"rootfs": ROOTFS}, tag)
    questions = (
        "id rocm; getent passwd rocm | cut -d: -f6-; stat -c '%u:%g %a %n' /home/rocm /workspace"
        " /home/rocm/.bashrc; ls /home; ls -d /etc/*- /var/mail/* 2>/dev/null; getent passwd ubuntu"
        "; su rocm -c 'echo $HOME'"
    )
    try:
        stdout, _ = run(client, tag, "sh", "-c", questions)
    finally:
        client.images.remove(tag, force=True)
    assert stdout.splitlines() == [
        "uid=1000(rocm) gid=1000(rocm) groups=1000(rocm)",
        "/home/rocm:/bin/bash",
        "1000:1000 755 /home/rocm",
        "1000:1000 775 /workspace",
        "1000:1000 644 /home/rocm/.bashrc",
        "rocm",
        "/home/rocm",
    ]
