"""The words that Apptainer and Slurm are called with, here and through the container engine."""

from __future__ import annotations

import errno
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builder.engines.apptainer import Apptainer, Squash, container_options
from builder.engines.places import HostPlace, Invocation, ToolsPlace, User, find_program
from builder.engines.process import Command, Completed
from builder.engines.slurm import Ask, Slurm
from builder.errors import CouldNotError
from builder.pipeline.sif import folder_of_one
from builder.plan.job_script import fabric_environ, job_script

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.engines.process import Stream

CALL = Invocation(
    ("exec", "/d/x.sif", "id"),
    60.0,
    {"HOME": "/h"},
    read=(Path("/d/x.sif"), Path("/w/in")),
    write=(Path("/w"),),
    devices=("/dev/kfd",),
)


class Answers:
    """A runner that gives one answer and keeps what it was asked."""

    def __init__(self, stdout: str = "", stderr: str = "", code: int = 0) -> None:
        self.asked: list[Command] = []
        self._answer = (code, stdout, stderr)

    def run(
        self,
        command: Command,
        on_line: Callable[[Stream, str], None] | None = None,  # noqa: ARG002
    ) -> Completed:
        self.asked.append(command)
        code, stdout, stderr = self._answer
        return Completed(command.argv, code, stdout, stderr, 0.0)


def test_the_tools_image_gets_no_privileges_no_network_and_paths_by_their_own_names() -> None:
    options = container_options(fuse=True)
    place = ToolsPlace("tools:1", "apptainer", User(7, 8, (9, 10)), options, ("k=v",))
    words = place.command(CALL).argv
    assert words[:2] == ("docker", "run")
    assert "--privileged" not in words
    assert "--network=none" in words
    assert "--volume=/d/x.sif:/d/x.sif:ro" in words
    assert "--volume=/w:/w" in words
    assert not any("/w/in" in word for word in words), "the folder above it is there, to write"
    assert "--env=HOME=/h" in words
    assert "--device=/dev/kfd" in words
    place_of = words.index("tools:1")
    assert words[place_of + 1 :] == (
        *("as-user", "7", "8", "9,10", "apptainer"),
        *("exec", "/d/x.sif", "id"),
    )


def test_without_a_fuse_device_none_is_asked_of_the_engine() -> None:
    assert "--device=/dev/fuse" in container_options(fuse=True)
    assert "--device=/dev/fuse" not in container_options(fuse=False)


def test_the_hosts_program_gets_the_environment_that_was_asked_for_and_no_other() -> None:
    caller = {"PATH": "/usr/bin", "TOKEN": "t", "SHELL": "/bin/sh"}
    command = HostPlace(Path("/usr/bin/apptainer"), caller).command(CALL)
    assert command.argv == ("/usr/bin/apptainer", "exec", "/d/x.sif", "id")
    assert command.env == {"PATH": "/usr/bin", "HOME": "/h"}


def test_what_is_handed_on_stands_in_no_argument() -> None:
    caller = {"PATH": "/usr/bin", "COLOUR": "hush"}
    call = replace(CALL, handed_on=("COLOUR", "NOT_SET"))
    here = HostPlace(Path("/usr/bin/cosign"), caller)
    assert (here.command(call).env or {})["COLOUR"] == "hush"
    words = ToolsPlace("tools:1", "cosign", User(0, 0)).command(call).argv
    assert "--env=COLOUR" in words
    assert not any("hush" in word for word in (*words, *here.command(call).argv))
    assert "hush" not in repr(here)


def test_the_host_is_asked_for_its_own_program_first(tmp_path: Path) -> None:
    caller = {"PATH": str(tmp_path)}
    assert find_program("apptainer", caller) is None
    program = tmp_path / "apptainer"
    program.write_text("#!/bin/sh\n", "ascii")
    program.chmod(0o755)
    assert find_program("apptainer", caller) == HostPlace(program, caller)


def test_an_old_apptainer_is_not_given_what_it_does_not_know() -> None:
    runner = Answers(stdout="Usage: apptainer build [options]\n  --fakeroot\n")
    program = Apptainer(runner, HostPlace(Path("/a"), {}))
    assert not program.can_tune()
    program.build(Path("/l"), Path("/o/x.sif"), temporary=Path("/t"), squash=None)
    assert "--mksquashfs-args" not in runner.asked[-1].argv
    program.build(Path("/l"), Path("/o/x.sif"), temporary=Path("/t"), squash=Squash(2, 1 << 30))
    assert "--mksquashfs-args" in runner.asked[-1].argv
    assert {runner.asked[-1].env[name] for name in ("APPTAINER_TMPDIR", "TMPDIR")} == {"/t"}  # type: ignore[index]


@pytest.mark.parametrize(("stdout", "code"), [("", 255), ("{}", 0), ("no json", 0)])
def test_a_file_without_labels_is_told_as_no_sif(stdout: str, code: int) -> None:
    program = Apptainer(Answers(stdout, code=code), HostPlace(Path("/a"), {}))
    with pytest.raises(CouldNotError, match="SIF_UNREADABLE"):
        program.labels(Path("/x.sif"))


@pytest.mark.parametrize(("stdout", "number"), [("42\n", "42"), ("42;cluster\n", "42")])
def test_the_id_of_a_job_is_what_slurm_prints_with_or_without_its_cluster(
    stdout: str, number: str
) -> None:
    runner = Answers(stdout)
    job = Slurm(runner).submit(Path("/f/job.sh"), "n", Ask("p", 8, "30", "gfx942", "a"))
    assert job == number
    words = runner.asked[0].argv
    assert {"--partition=p", "--gpus=8", "--time=30", "--constraint=gfx942", "--account=a"} <= {
        *words
    }


def test_what_slurm_refuses_is_told_in_its_words() -> None:
    runner = Answers(stderr="sbatch: error: invalid partition specified: nope\n", code=1)
    with pytest.raises(CouldNotError, match="invalid partition specified: nope"):
        Slurm(runner).submit(Path("/f/job.sh"), "n", Ask())


def test_a_job_that_slurm_has_forgotten_has_no_state_and_a_silent_controller_is_an_error() -> None:
    forgotten = Answers(stderr="slurm_load_jobs error: Invalid job id specified\n", code=1)
    assert Slurm(forgotten).state("1") is None
    with pytest.raises(CouldNotError, match="SLURM_UNREACHABLE"):
        Slurm(Answers(stderr="Unable to contact slurm controller", code=1)).state("1")


@pytest.mark.parametrize("folder", ["/plain", "/with space", "/it's", "/a$b"])
def test_a_job_script_is_valid_shell_whatever_the_folder_is_called(folder: str) -> None:
    script = job_script(Path(folder), Path(f"{folder}/x.sif"), "smoke", {"NCCL_DEBUG": "a b"})
    done = subprocess.run(["bash", "-n"], input=script, text=True, check=False, timeout=30)
    assert done.returncode == 0
    assert "export APPTAINERENV_NCCL_DEBUG='a b'" in script


def test_a_fabric_brings_its_variables_and_none_brings_none() -> None:
    assert fabric_environ(None) == {}
    assert fabric_environ("cxi")["FI_MR_CACHE_MONITOR"] == "userfaultfd"
    said = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/mnt/rccl.%h.%p"}
    assert fabric_environ("ib") == said


def test_the_gpus_that_slurm_gave_reach_the_container(tmp_path: Path) -> None:
    script = job_script(tmp_path, Path("/s/x.sif"), "gpu")
    tool = tmp_path / "apptainer"
    tool.write_text(f"#!/bin/sh\nenv >'{tmp_path}/seen'\n", "ascii")
    tool.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "ROCR_VISIBLE_DEVICES": "2,3"}
    subprocess.run(["bash", "-c", script], env=environ, check=False, timeout=30)
    seen = (tmp_path / "seen").read_text("utf-8").splitlines()
    assert "APPTAINERENV_ROCR_VISIBLE_DEVICES=2,3" in seen
    assert not any(line.startswith("APPTAINERENV_HIP") for line in seen)


def test_an_output_that_is_a_folder_or_lies_in_a_place_without_rights_is_told_at_once(
    tmp_path: Path,
) -> None:
    with pytest.raises(CouldNotError, match="SIF_NOT_WRITABLE"), folder_of_one(tmp_path, tmp_path):
        pass
    blocked = tmp_path / "file"
    blocked.write_text("", "ascii")
    with (
        pytest.raises(CouldNotError, match="SIF_NOT_WRITABLE"),
        folder_of_one(blocked / "x.sif", tmp_path),
    ):
        pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_a_file_system_without_locks_is_no_other_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    with (
        pytest.raises(CouldNotError, match="NO_FILE_LOCKS"),
        folder_of_one(tmp_path / "x.sif", tmp_path),
    ):
        pass
