"""Debian's hipcc, hipify-perl and clinfo at work under the self-test's own checks.

torch is not in this image: the whole cells are built from the facts, and they are large.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import pytest

from builder.facts import load_facts
from builder.matrix.families import FAMILIES, Combination

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SELFTEST = Path(__file__).parents[2] / "images/selftest"
DOCKERFILE = """
FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends python3 g++ {packages}
COPY --from=selftest rocm_torch_selftest /opt/rocm_torch_selftest
"""
ASK = """
import json, sys, tempfile
from pathlib import Path
sys.path.insert(0, "/opt")
from rocm_torch_selftest.cell import Cell
from rocm_torch_selftest.checks import contents, hipify, opencl
from rocm_torch_selftest.context import Context
from rocm_torch_selftest.outcome import CheckFailedError
asked = json.loads(sys.argv[1])
cell = Cell("x", "3.13", "2.6.0", "cpu", None, tuple(asked["contents"]), (),
            gfx=tuple(asked["gfx"]))
context = Context(cell, Path(tempfile.mkdtemp()), lambda _: None)
found = {}
for check in (contents, hipify, opencl):
    try:
        outcome = check.run(context)
        found[check.__name__.split(".")[-1]] = [outcome.status, outcome.detail, dict(outcome.data)]
    except CheckFailedError as error:
        found[check.__name__.split(".")[-1]] = ["fail", error.detail, error.data]
print(json.dumps(found))
"""
TARGETS = ("gfx90a", "gfx908", "gfx942", "gfx1030", "gfx1100")
TOOLS = ("hipcc", "hipify-perl", "clinfo", "g++")


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    client = docker.from_env(timeout=300)
    yield client
    client.close()


def added(flavour: str) -> set[str]:
    """Return the packages that a flavour has on top of the runtime's."""
    facts = load_facts()
    plain = Combination("a", "distro", "debian13", None, "2.6.0", "3.13", "runtime")
    made = (
        FAMILIES["distro"].specify(replace(plain, flavour=name), facts)
        for name in (flavour, "runtime")
    )
    more, less = (set(one.packages) for one in made)
    return more - less


@pytest.fixture(scope="module")
def image(
    client: docker.DockerClient,
    debian_base: str,
    build_image: Callable[[str, dict[str, Path], str], str],
) -> Iterator[str]:
    packages = " ".join(sorted(added("devel") | added("opencl")))
    tag = f"rocm-torch-test/devel:{os.getpid()}"
    text = DOCKERFILE.format(base=debian_base, packages=packages)
    yield build_image(text, {"selftest": SELFTEST}, tag)
    client.images.remove(tag, force=True)


def ask(client: docker.DockerClient, image: str, *targets: str) -> dict[str, list[Any]]:
    asked = json.dumps({"contents": TOOLS, "gfx": targets})
    output = client.containers.run(image, ["python3", "-c", ASK, asked], remove=True)
    found: dict[str, list[Any]] = json.loads(output)
    return found


def test_a_cuda_kernel_is_ported_and_has_code_for_every_target(
    client: docker.DockerClient, image: str
) -> None:
    found = ask(client, image, *TARGETS)
    assert found["hipify"][0] == "pass", found["hipify"]
    assert found["hipify"][2]["targets"] == list(TARGETS)
    assert found["contents"][0] == "pass", found["contents"]


def test_clinfo_sees_the_platform_of_rocm_without_a_gpu(
    client: docker.DockerClient, image: str
) -> None:
    status, detail, data = ask(client, image, TARGETS[0])["opencl"]
    assert status == "pass", detail
    assert data["drivers"] == ["libamdocl64.so"]
    assert [one["name"] for one in data["found"]] == ["AMD Accelerated Parallel Processing"]


def test_a_target_that_the_compiler_does_not_know_is_told(
    client: docker.DockerClient, image: str
) -> None:
    status, detail, _ = ask(client, image, "gfx90a", "gfx1250")["hipify"]
    assert status == "fail"
    assert "gfx1250" in detail
