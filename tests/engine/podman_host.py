"""A place where podman runs: rootful as it is, rootless as a user that exists there alone.

Both live in namespaces of their own for mounts and processes, so that nothing of the machine is
changed. There ``/etc/passwd`` has one more user, and the control groups are version 2: crun
refuses the mixture of both versions that some machines have. The limits that podman raises by
itself need a right that root in a container may lack, so they are set lower; no line that is
tested changes for that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

UID = 64_000
_CONF = """[containers]
cgroups = "disabled"
cgroupns = "host"
netns = "host"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
"""
# Without copies of the whole image a container, which is what vfs makes.
_STORAGE = """[storage]
driver = "overlay"
graphroot = "{folder}/home/storage"
runroot = "{folder}/run/storage"
"""
_UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_LOCKS = Path(f"/dev/shm/libpod_rootless_lock_{UID}")
_ENTER = """set -e
mount -t cgroup2 none /sys/fs/cgroup
for file in passwd group subuid subgid; do mount --bind "$1/etc/$file" "/etc/$file"; done
groups=$2
export HOME="$1/home" XDG_RUNTIME_DIR="$1/run" CONTAINERS_CONF="$1/containers.conf"
export CONTAINERS_STORAGE_CONF="$1/storage.conf"
# It names a process of an earlier namespace: here the number may be another process's.
rm -f "$1/run/libpod/tmp/pause.pid"
shift 2
# Not exec: this shell is process 1 there, and waits for what podman leaves to process 1.
if [ -n "$groups" ]; then
    setpriv --reuid=64000 --regid=64000 --groups="$groups" "$@" || exit $?
else
    "$@" || exit $?
fi
exit 0
"""


@dataclass(frozen=True)
class PodmanHost:
    """How to run a program there; ``groups`` of the user, nothing for root."""

    folder: Path
    groups: str = ""

    def enter(self) -> tuple[str, ...]:
        """Return the words that come before a command."""
        script = str(self.folder / "enter.sh")
        return (*_UNSHARE, "sh", script, str(self.folder), self.groups)

    def podman(self, *words: str, stdin: bytes | None = None) -> str:
        """Run podman there, which must succeed."""
        argv = [*self.enter(), "podman", *words]
        done = subprocess.run(
            argv, input=stdin, capture_output=True, check=False, timeout=300, cwd="/"
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def clean(self, image: str) -> None:
        """Take away images, volumes, and what rootless podman leaves: its locks.

        Locks of another storage in the same file would let a container wait for itself.
        """
        if self.groups:
            self.podman("system", "reset", "--force")
        else:
            self.podman("image", "rm", "--force", image)
        _LOCKS.unlink(missing_ok=True)


def why_not() -> str | None:
    """Return why podman cannot run on this machine; ``None`` where it can."""
    missing = [name for name in ("podman", "crun", "unshare", "setpriv") if not shutil.which(name)]
    if missing:
        return f"this machine lacks {', '.join(missing)}: scripts/setup.sh podman"
    if os.geteuid() != 0:
        return "making device nodes needs root"
    probe = [*_UNSHARE, "mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    return f"no mount namespace here: {done.stderr.strip()}" if done.returncode else None


def make(folder: Path, groups: str = "") -> PodmanHost:
    """Make the place in ``folder``, which its user can reach."""
    (folder / "etc").mkdir()
    lines = {
        "passwd": f"tester:x:{UID}:{UID}::{folder}/home:/bin/sh\n",
        "group": f"tester:x:{UID}:\n",
        "subuid": "tester:200000:65536\n",
        "subgid": "tester:200000:65536\n",
    }
    for name, line in lines.items():
        there = Path("/etc") / name
        there.touch()
        text = there.read_text("utf-8")
        (folder / "etc" / name).write_text(text + line, "utf-8")
    for name in ("home", "run"):
        (folder / name).mkdir(mode=0o700)
        if groups:
            os.chown(folder / name, UID, UID)
    (folder / "containers.conf").write_text(_CONF, "utf-8")
    (folder / "storage.conf").write_text(_STORAGE.format(folder=folder), "utf-8")
    (folder / "enter.sh").write_text(_ENTER, "utf-8")
    folder.chmod(0o755)
    return PodmanHost(folder, groups)
