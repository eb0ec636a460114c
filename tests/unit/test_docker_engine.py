from __future__ import annotations

from typing import Any

import docker.errors
import pytest
import requests

from builder.engines.docker_engine import DockerEngine, EngineInfo
from builder.errors import CouldNotError, Problem

CONTAINERD = [["driver-type", "io.containerd.snapshotter.v1"]]


class Answering:
    """Stands where the SDK's client is: gives one answer, or raises."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer = answer

    def info(self) -> dict[str, Any]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def engine(answer: dict[str, Any] | Exception) -> DockerEngine:
    made = DockerEngine()
    made.__dict__["_client"] = Answering(answer)
    return made


def problem_of(made: DockerEngine) -> Problem:
    with pytest.raises(CouldNotError) as caught:
        made.check()
    return caught.value.problems[0]


def test_an_engine_with_the_containerd_store_is_fit() -> None:
    answer = {
        "ServerVersion": "26.1.5",
        "DriverStatus": CONTAINERD,
        "DockerRootDir": "/var/lib/docker",
        "OperatingSystem": "Debian",
    }
    assert engine(answer).check() == EngineInfo("26.1.5", True, "/var/lib/docker", "Debian")


@pytest.mark.parametrize("status", [None, [], [["Backing Filesystem", "extfs"]]])
def test_an_engine_with_the_classic_store_is_refused_with_the_line_to_write(status: object) -> None:
    problem = problem_of(engine({"ServerVersion": "20.10.24", "DriverStatus": status}))
    assert problem.code == "ENGINE_UNFIT"
    assert "20.10.24" in problem.what
    assert '"containerd-snapshotter": true' in (problem.fix or "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (docker.errors.DockerException("no socket"), "ENGINE_UNREACHABLE"),
        (requests.exceptions.ConnectionError("reset"), "ENGINE_UNREACHABLE"),
        (requests.exceptions.ReadTimeout("slow"), "ENGINE_UNREACHABLE"),
        (docker.errors.APIError("bad", explanation="not allowed"), "ENGINE_REFUSED"),
    ],
)
def test_what_the_sdk_raises_becomes_a_problem(error: Exception, code: str) -> None:
    problem = problem_of(engine(error))
    assert problem.code == code
    assert problem.what.startswith("could not ask the container engine")
