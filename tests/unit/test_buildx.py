from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from builder.engines.buildx import Buildx
from builder.engines.process import ProcessRunner
from builder.errors import CouldNotError, Problem
from builder.oci import Digest

CASES = Path(__file__).parents[1] / "cases" / "buildx"
DIGEST = Digest.of(b"image")
# Plays the docker CLI: replays what `script.json` says for each call, and notes the call.
FAKE = """
import json, pathlib, sys
home = pathlib.Path(__file__).parent
calls = home / "calls.jsonl"
number = len(calls.read_text().splitlines()) if calls.exists() else 0
with calls.open("a") as stream:
    stream.write(json.dumps(sys.argv[1:]) + chr(10))
answers = json.loads((home / "script.json").read_text())
answer = answers[min(number, len(answers) - 1)]
sys.stdout.write(answer.get("stdout", ""))
sys.stderr.write(answer.get("stderr", ""))
if "metadata" in answer:
    path = sys.argv[sys.argv.index("--metadata-file") + 1]
    pathlib.Path(path).write_text(json.dumps(answer["metadata"]))
sys.exit(answer.get("status", 0))
"""
BUILT = {
    "stderr": (CASES / "built.rawjson").read_text(),
    "metadata": {"cell": {"containerimage.digest": str(DIGEST)}},
}
BUSY = {"stderr": (CASES / "busy.rawjson").read_text(), "status": 1}
FAILED = {"stderr": (CASES / "failed.rawjson").read_text(), "status": 1}


class FakeDocker:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "docker"
        program.write_text(f"#!{sys.executable}{FAKE}")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def answers(self, *answers: dict[str, Any]) -> None:
        (self.folder / "script.json").write_text(json.dumps(answers))

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "calls.jsonl").read_text().splitlines()]


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDocker:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return FakeDocker(folder)


def bake(folder: Path, builder: str | None = None, **options: Any) -> Digest:
    return Buildx(ProcessRunner(), builder).bake(
        folder / "bake.json", "cell", log=folder / "logs" / "build.log", **options
    )


def failure(folder: Path) -> Problem:
    with pytest.raises(CouldNotError) as caught:
        bake(folder)
    return caught.value.problems[0]


def test_a_build_gives_the_digest_of_its_target_and_a_readable_log(
    tmp_path: Path, docker: FakeDocker
) -> None:
    docker.answers(BUILT)
    heard: list[str] = []
    assert bake(tmp_path, on_log=heard.append) == DIGEST
    assert (tmp_path / "logs" / "build.log").read_text().splitlines() == heard
    assert any("exporting to oci image format" in line for line in heard)


def test_the_call_names_file_target_and_no_attestation(tmp_path: Path, docker: FakeDocker) -> None:
    docker.answers(BUILT)
    bake(tmp_path, "remote", no_cache=True)
    words = docker.calls[0]
    assert words[:4] == ["buildx", "--builder", "remote", "bake"]
    assert words[words.index("--file") + 1] == str(tmp_path / "bake.json")
    assert {"--provenance=false", "--sbom=false", "--no-cache"} <= set(words)
    assert words[-1] == "cell"


def test_a_failed_build_shows_its_last_thirty_lines_and_where_the_log_is(
    tmp_path: Path, docker: FakeDocker
) -> None:
    docker.answers(FAILED)
    problem = failure(tmp_path)
    log = tmp_path / "logs" / "build.log"
    shown = problem.what.split("\n")[1:]
    assert problem.code == "BUILD_FAILED"
    assert [line.removeprefix("    ") for line in shown] == log.read_text().splitlines()[-30:]
    assert shown[-1].strip().startswith("ERROR: failed to solve")
    assert str(log) in (problem.fix or "")
    assert len(docker.calls) == 1


def test_a_layout_that_another_writer_holds_is_tried_again_from_the_cache(
    tmp_path: Path, docker: FakeDocker
) -> None:
    docker.answers(BUSY, BUSY, BUILT)
    assert bake(tmp_path, no_cache=True) == DIGEST
    assert ["--no-cache" in words for words in docker.calls] == [True, False, False]


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: could not lock /srv/layout/index.json.lock",
        "ERROR: failed to solve: ref sha256:ab locked for 1.2ms: unavailable",
    ],
)
def test_every_wording_of_busy_is_known(tmp_path: Path, docker: FakeDocker, line: str) -> None:
    docker.answers({"stderr": line, "status": 1}, BUILT)
    assert bake(tmp_path) == DIGEST


def test_a_layout_that_stays_busy_fails_after_some_tries(
    tmp_path: Path, docker: FakeDocker
) -> None:
    docker.answers(BUSY)
    assert "could not lock" in failure(tmp_path).what
    assert len(docker.calls) == 4


def test_a_build_without_a_digest_is_told(tmp_path: Path, docker: FakeDocker) -> None:
    docker.answers({"metadata": {"cell": {}}})
    assert failure(tmp_path).code == "BUILD_WITHOUT_DIGEST"


def test_the_version_is_read(docker: FakeDocker) -> None:
    docker.answers({"stdout": "github.com/docker/buildx 0.13.1+ds1 0.13.1+ds1-3\n"})
    assert str(Buildx(ProcessRunner()).check()) == "0.13.1"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"stderr": "docker: 'buildx' is not a docker command.\n", "status": 1}, "BUILDX_MISSING"),
        ({"stdout": "Usage: docker [OPTIONS]\n"}, "BUILDX_MISSING"),
        ({"stdout": "github.com/docker/buildx v0.9.1 ed00243\n"}, "BUILDX_TOO_OLD"),
        ({"stdout": "github.com/docker/buildx v0.12.1 30feaa1\n"}, "BUILDX_TOO_OLD"),
    ],
)
def test_a_missing_or_old_plugin_is_told(
    docker: FakeDocker, answer: dict[str, Any], code: str
) -> None:
    docker.answers(answer)
    with pytest.raises(CouldNotError) as caught:
        Buildx(ProcessRunner()).check()
    problem = caught.value.problems[0]
    assert problem.code == code
    assert "install" in (problem.fix or "")


def test_a_missing_docker_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CouldNotError) as caught:
        Buildx(ProcessRunner()).check()
    assert caught.value.problems[0].code == "TOOL_MISSING"
