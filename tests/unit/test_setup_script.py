"""The set-up script decides right on machines other than this one, played by stand-ins."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "setup.sh"
TOOLS = (
    *("awk", "bash", "cat", "chmod", "cut", "dirname", "env", "find", "flock", "grep", "head"),
    *("id", "mkdir", "mktemp", "readlink", "rm", "sed", "setsid", "sha256sum", "sleep", "sort"),
    *("tail", "tee", "timeout", "tr", "true"),
)
NO_ENGINE = "dockerd_pids() { :; }"
FIT = {"version": "26.1.5+dfsg1", "store": "io.containerd.snapshotter.v1", "buildx": "v0.13.1"}


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    said: str


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine whose whole PATH is one folder; ``home`` holds what the script writes and reads."""

    home: Path

    @property
    def bin(self) -> Path:
        return self.home / "bin"

    def program(self, name: str, body: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def docker(self, *, version: str, store: str, buildx: str) -> None:
        """Put a Docker client here whose engine answers like that."""
        self.program(
            "docker",
            f"""case "$1 $2" in
                "version --format") echo '{version}' ;;
                "info --format") echo '[["driver-type","{store}"]]' ;;
                "buildx version") echo 'github.com/docker/buildx {buildx} abcdef' ;;
                "context inspect") echo unix:///var/run/docker.sock ;;
            esac""",
        )

    def client_only(self, error: str, endpoint: str = "unix:///var/run/docker.sock") -> None:
        """Put a Docker client here to which no engine answers."""
        self.program(
            "docker",
            f'[[ $1 == context ]] && echo {endpoint} && exit; echo "{error}" >&2; exit 1',
        )

    def user(self, name: str = "ann", *, sudo: bool = False) -> None:
        """Make the caller an ordinary user."""
        self.program(
            "id",
            f'case "$*" in -u) echo 1000 ;; -un) echo {name} ;; *) echo {name} ;; esac',
        )
        self.program("sudo", 'shift; exec "$@"' if sudo else "exit 1")

    def os(self, text: str) -> None:
        (self.home / "os-release").write_text(text, encoding="utf-8")

    def ask(self, snippet: str, **environ: str) -> Answer:
        """Source the script, point it to this machine, and run ``snippet``."""
        here = self.home
        lines = (
            f"source {SCRIPT}",
            f"ROOT={here}/work STATE={here}/work/.rocm-torch/engine OS_RELEASE={here}/os-release",
            f"APT_ETC={here}/apt DAEMON_JSON={here}/docker/daemon.json SYSTEMD_RUNS={here}/systemd",
            f"APPARMOR={here}/apparmor KEYRING={here}/keyring TRIXIE_KEY={here}/trixie-key",
            f"SBIN_DOCKERD={here}/dockerd START_SECONDS=5",
            "set -euo pipefail",
            snippet,
        )
        result = subprocess.run(
            ["bash", "-c", "\n".join(lines)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"PATH": str(self.bin), "HOME": str(here), **environ},
        )
        return Answer(result.returncode, result.stdout.strip(), result.stderr.strip())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A Debian 12 machine with root and without any engine."""
    made = Machine(tmp_path)
    made.bin.mkdir()
    (tmp_path / "work").mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found, f"{name} is needed by the script and not on this machine"
        (made.bin / name).symlink_to(found)
    made.program("id", 'case "$*" in -u) echo 0 ;; *) echo root ;; esac')
    made.os('ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
    return made


@pytest.mark.parametrize(
    ("release", "kind"),
    [
        ('ID=debian\nVERSION_ID="12"', "debian-12"),
        ('ID=debian\nVERSION_ID="13"', "debian"),
        ("ID=debian", "debian"),
        ('ID=debian\nVERSION_ID="11"', "other"),
        ('ID=ubuntu\nVERSION_ID="24.04"', "ubuntu"),
        ('ID="rhel"\nVERSION_ID="9.4"', "other"),
        ("", "other"),
    ],
)
def test_the_distribution_is_read_from_os_release(
    machine: Machine, release: str, kind: str
) -> None:
    machine.os(release)
    assert machine.ask("distribution").out == kind


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "fit"),
        ({"version": "29.0.1"}, "fit"),
        ({"buildx": "0.30.0-desktop.1"}, "fit"),
        ({"store": "Backing Filesystem"}, "no-store"),
        ({"version": "20.10.24+dfsg1"}, "old"),
        ({"version": "5.4.2"}, "old"),
        ({"buildx": "v0.9.1"}, "no-buildx"),
        ({"buildx": ""}, "no-buildx"),
    ],
)
def test_an_engine_that_answers_is_fit_or_the_lack_is_named(
    machine: Machine, changes: dict[str, str], state: str
) -> None:
    machine.docker(**(FIT | changes))
    assert machine.ask("engine_state").out == state


def test_a_client_without_an_engine_counts_as_none(machine: Machine) -> None:
    machine.client_only("Cannot connect to the Docker daemon")
    assert machine.ask(f"{NO_ENGINE}; engine_state").out == "none"


def test_no_docker_at_all_is_none_and_an_installed_dockerd_is_stopped(machine: Machine) -> None:
    assert machine.ask(f"{NO_ENGINE}; engine_state").out == "none"
    machine.program("dockerd", "exit 1")
    assert machine.ask(f"{NO_ENGINE}; engine_state").out == "stopped"


def test_a_running_dockerd_that_is_silent_gets_no_second_one_beside_it(machine: Machine) -> None:
    machine.client_only("Cannot connect to the Docker daemon")
    machine.program("dockerd", "echo started; exit 1")
    answer = machine.ask("dockerd_pids() { echo 77; }; setup_engine")
    assert answer.code == 1
    assert "process 77" in answer.said
    assert "started" not in answer.out + answer.said


@pytest.mark.parametrize("where", ["ssh://ann@far", "tcp://far:2376", "unix:///run/user/1/d.sock"])
@pytest.mark.parametrize("by", ["DOCKER_HOST", "context"])
def test_an_engine_that_the_user_chose_is_never_replaced(
    machine: Machine, where: str, by: str
) -> None:
    machine.program("dockerd", "exit 1")
    machine.client_only("Cannot connect", endpoint=where if by == "context" else "none")
    environ = {"DOCKER_HOST": where} if by == "DOCKER_HOST" else {}
    answer = machine.ask(f"{NO_ENGINE}; setup_engine", **environ)
    assert answer.code == 1
    assert where in answer.said
    assert "installs" not in answer.said


def test_a_chosen_engine_without_a_client_is_not_replaced_either(machine: Machine) -> None:
    answer = machine.ask(f"{NO_ENGINE}; engine_state", DOCKER_HOST="ssh://ann@far")
    assert answer.out == "chosen-silent"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"store": "overlay2"}, ("containerd-snapshotter", "Nothing was changed")),
        ({"version": "20.10.24"}, ("20.10.24", "26", "Nothing was changed")),
        ({"buildx": "v0.9.1"}, ("0.9.1", "docker-buildx", "Nothing was changed")),
    ],
)
def test_an_unfit_engine_gets_one_message_and_nothing_is_changed(
    machine: Machine, changes: dict[str, str], told: tuple[str, ...]
) -> None:
    machine.docker(**(FIT | changes))
    machine.program("apt-get", "echo apt was called; exit 1")
    answer = machine.ask("setup_engine")
    assert answer.code == 1
    assert answer.said.count("setup:") == 1
    assert all(word in answer.said for word in told)
    assert "apt was called" not in answer.out
    assert not (machine.home / "docker").exists()


def test_the_line_that_turns_the_store_on_keeps_what_the_file_says(machine: Machine) -> None:
    machine.docker(**(FIT | {"store": "overlay2"}))
    config = machine.home / "docker" / "daemon.json"
    config.parent.mkdir()
    config.write_text('{"features": {"cdi": true}, "mtu": 1400}')
    said = machine.ask("setup_engine").said
    line = next(line for line in said.splitlines() if "python3 -c" in line)
    program = line.partition("python3 -c '")[2].partition("'")[0]
    subprocess.run(["python3", "-c", program], check=True, timeout=30)
    expected = {"features": {"cdi": True, "containerd-snapshotter": True}, "mtu": 1400}
    assert json.loads(config.read_text()) == expected


def test_no_root_and_no_engine_is_one_message_with_the_ways_out(machine: Machine) -> None:
    machine.user()
    answer = machine.ask(f"{NO_ENGINE}; setup_engine")
    assert answer.code == 1
    for way in ("sudo", "group docker", "rootless", "DOCKER_HOST"):
        assert way in answer.said
    assert answer.said.count("setup:") == 1


def test_an_engine_that_the_user_may_not_speak_to_is_told_as_such(machine: Machine) -> None:
    machine.user()
    machine.client_only("permission denied while trying to connect to the Docker daemon socket")
    answer = machine.ask("setup_engine")
    assert answer.code == 1
    assert "usermod -aG docker ann" in answer.said


def test_another_distribution_is_told_what_to_install(machine: Machine) -> None:
    machine.os('ID=rhel\nVERSION_ID="9.4"\nPRETTY_NAME="Red Hat Enterprise Linux 9.4"')
    answer = machine.ask(f"{NO_ENGINE}; setup_engine")
    assert answer.code == 1
    assert "Red Hat Enterprise Linux 9.4" in answer.said


@pytest.mark.parametrize(
    ("release", "packages"),
    [
        ('ID=debian\nVERSION_ID="12"', "docker.io/trixie docker-cli/trixie docker-buildx/trixie"),
        ('ID=debian\nVERSION_ID="13"', "docker.io docker-cli docker-buildx"),
        ('ID=ubuntu\nVERSION_ID="24.04"', "docker.io docker-buildx"),
    ],
)
def test_an_install_says_what_it_installs_before_it_does(
    machine: Machine, release: str, packages: str
) -> None:
    machine.os(release)
    (machine.home / "trixie-key").touch()
    machine.program("apt-get", 'echo "apt-get $*" >&2')
    answer = machine.ask("install_engine")
    assert answer.code == 0
    lines = answer.said.splitlines()
    told = next(number for number, line in enumerate(lines) if packages in line)
    done = next(number for number, line in enumerate(lines) if line.startswith("apt-get"))
    assert told < done
    assert any(line.endswith(packages) for line in lines if line.startswith("apt-get"))
    assert "containerd-snapshotter" in (machine.home / "docker" / "daemon.json").read_text()


def test_an_existing_configuration_is_not_changed_by_an_install(machine: Machine) -> None:
    config = machine.home / "docker" / "daemon.json"
    config.parent.mkdir()
    config.write_text('{"mtu": 1400}')
    (machine.home / "trixie-key").touch()
    machine.program("apt-get", ":")
    assert machine.ask("install_engine").code == 0
    assert config.read_text() == '{"mtu": 1400}'


def test_a_failed_install_ends_with_a_message(machine: Machine) -> None:
    (machine.home / "trixie-key").touch()
    machine.program("apt-get", "echo E: no network >&2; exit 100")
    answer = machine.ask("install_engine")
    assert answer.code == 1
    assert "could not be installed" in answer.said


def test_apparmor_gets_its_parser_with_the_engine(machine: Machine) -> None:
    (machine.home / "apparmor").write_text("Y\n")
    assert machine.ask("engine_packages").out.endswith("apparmor")
    machine.program("apparmor_parser", ":")
    assert "apparmor" not in machine.ask("engine_packages").out


DEB822 = """\
# Types: deb
Types: deb-src
URIs: http://sources.example/debian
Suites: bookworm

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm

Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
"""
ONE_LINE = """\
# deb http://comment.example/debian bookworm main
deb-src http://sources.example/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sources.list.d/debian.sources", DEB822),
        ("sources.list.d/site.list", ONE_LINE),
        ("sources.list", ONE_LINE),
    ],
)
def test_the_machines_own_mirror_is_used(machine: Machine, name: str, text: str) -> None:
    path = machine.home / "apt" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert machine.ask("archive_of bookworm").out == "http://mirror.example/debian"
    folder = machine.home / "private"
    assert machine.ask(f"write_private_sources {folder}").code == 0
    lines = (folder / "sources.list").read_text().splitlines()
    assert [line.split()[2] for line in lines] == ["http://mirror.example/debian"] * 4
    assert "Pin-Priority: 100" in (folder / "preferences").read_text()


def test_without_sources_the_public_archive_is_used(machine: Machine) -> None:
    folder = machine.home / "private"
    assert machine.ask(f"archive_of bookworm; write_private_sources {folder}").out == ""
    assert " http://deb.debian.org/debian trixie main" in (folder / "sources.list").read_text()


def test_an_engine_that_ends_at_once_is_told_with_its_log(machine: Machine) -> None:
    machine.client_only("Cannot connect to the Docker daemon")
    machine.program("dockerd", "echo no space left on device; exit 1")
    answer = machine.ask(f"{NO_ENGINE}; setup_engine")
    assert answer.code == 1
    assert "no space left on device" in answer.said
    assert "did not come up" in answer.said


def test_stop_ends_no_process_that_it_did_not_start(machine: Machine) -> None:
    state = machine.home / "work" / ".rocm-torch" / "engine"
    state.mkdir(parents=True)
    with subprocess.Popen(["sleep", "60"]) as other:
        (state / "dockerd.pid").write_text(f"{other.pid} 12345\n")
        assert machine.ask("stop_engine").code == 0
        assert other.poll() is None
        other.kill()
    assert not (state / "dockerd.pid").exists()


def test_stop_ends_the_engine_that_was_started_here(machine: Machine) -> None:
    # The kernel names a process after its program file: a copy of sleep plays the engine.
    engine = machine.home / "dockerd"
    shutil.copy(Path(shutil.which("sleep") or "sleep").resolve(), engine)
    state = machine.home / "work" / ".rocm-torch" / "engine"
    state.mkdir(parents=True)
    with subprocess.Popen([engine, "60"]) as process:
        assert machine.ask(f"process_mark {process.pid} >$STATE/dockerd.pid").code == 0
        answer = machine.ask("stop_engine")
        assert "stops the engine" in answer.said
        assert process.wait(timeout=10) < 0
    assert not (state / "dockerd.pid").exists()


def test_a_second_set_up_waits_for_the_first(machine: Machine) -> None:
    (machine.home / "work" / ".rocm-torch").mkdir()
    lock = machine.home / "work" / ".rocm-torch" / "setup.lock"
    snippet = f"flock -n {lock} true && echo free || echo taken"
    assert machine.ask(f"take_turn; {snippet}").out == "taken"
    assert machine.ask(f"take_turn; end_turn; {snippet}").out == "free"


def test_a_command_gets_the_engine_and_its_exit_status_is_kept(machine: Machine) -> None:
    machine.docker(**FIT)
    answer = machine.ask("with_engine --stop-after bash -c 'echo ran; exit 7'")
    assert (answer.code, answer.out) == (7, "ran")
    assert "stops the engine" not in answer.said


def test_an_environment_that_is_current_is_left_alone(machine: Machine) -> None:
    work = machine.home / "work"
    (work / "pyproject.toml").write_text("[project]\n")
    (work / "requirements-dev.lock").write_text("one==1\n")
    calls = machine.home / "calls"
    venv = work / ".venv" / "bin"
    venv.mkdir(parents=True)
    machine.program("python3", f'[[ $1 != --version ]] || echo Python 3.11; echo "$*" >>{calls}')
    (venv / "python").symlink_to(machine.bin / "python3")
    assert machine.ask("setup_python").code == 0
    first = calls.read_text()
    assert "--require-hashes -r" in first
    assert "--no-deps -e" in first
    calls.unlink()
    assert machine.ask("setup_python").code == 0
    assert "install" not in calls.read_text()
    (work / "requirements-dev.lock").write_text("one==2\n")
    assert machine.ask("setup_python").code == 0
    assert "--require-hashes -r" in calls.read_text()


def test_an_install_of_packages_that_fails_leaves_no_stamp(machine: Machine) -> None:
    work = machine.home / "work"
    (work / "pyproject.toml").write_text("[project]\n")
    (work / "requirements-dev.lock").write_text("one==1\n")
    venv = work / ".venv" / "bin"
    venv.mkdir(parents=True)
    machine.program("python3", '[[ "$*" != *--require-hashes* ]]')
    (venv / "python").symlink_to(machine.bin / "python3")
    answer = machine.ask("setup_python")
    assert answer.code == 1
    assert "could not be installed" in answer.said
    assert not (work / ".venv" / ".rocm-torch-stamp").exists()


@pytest.mark.parametrize(
    ("release", "packages"),
    [
        ('ID=debian\nVERSION_ID="12"', "python3 python3-venv"),
        ('ID=ubuntu\nVERSION_ID="22.04"', "python3.11 python3.11-venv"),
        ('ID=ubuntu\nVERSION_ID="24.04"', "python3 python3-venv"),
    ],
)
def test_a_python_that_is_new_enough_is_asked_of_the_archive(
    machine: Machine, release: str, packages: str
) -> None:
    machine.os(release)
    machine.user()
    answer = machine.ask("setup_python")
    assert answer.code == 1
    assert f"sudo apt-get install -y --no-install-recommends {packages}" in answer.said


def test_an_unknown_verb_is_a_bad_call_that_shows_the_usage() -> None:
    result = subprocess.run(
        ["bash", str(SCRIPT), "enigne"], capture_output=True, text=True, timeout=30, check=False
    )
    assert result.returncode == 64
    assert "scripts/setup.sh engine" in result.stderr
    assert os.access(SCRIPT, os.X_OK)
