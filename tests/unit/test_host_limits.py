"""What a process may use of its host, read from stand-in trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.host.limits import allowed_memory
from builder.host.mounts import kind_of

GIB = 1 << 30
MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
tmpfs /tmp tmpfs rw,nosuid 0 0
lustre@o2ib:/scratch /scratch lustre rw 0 0
/dev/nvme0 /tmp/big\\040disk xfs rw 0 0
"""


def host(root: Path, *, memory_gib: int, group: str, files: dict[str, str]) -> Path:
    texts = {
        "proc/meminfo": f"MemTotal: {memory_gib * GIB // 1024} kB\nMemFree: 1 kB\n",
        "proc/self/cgroup": group,
        **files,
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "ascii")
    return root


@pytest.mark.parametrize(
    ("group", "files", "gib"),
    [
        ("0::/\n", {}, 512),
        ("0::/job/step\n", {"sys/fs/cgroup/job/step/memory.max": f"{8 * GIB}\n"}, 8),
        ("0::/job/step\n", {"sys/fs/cgroup/job/memory.max": f"{8 * GIB}\n"}, 8),
        (
            "0::/job/step\n",
            {
                "sys/fs/cgroup/job/memory.max": f"{8 * GIB}\n",
                "sys/fs/cgroup/job/step/memory.max": "max\n",
                "sys/fs/cgroup/job/step/memory.high": f"{6 * GIB}\n",
            },
            6,
        ),
        (
            "5:memory:/slurm/uid_1/job_2\n1:name=systemd:/\n",
            {"sys/fs/cgroup/memory/slurm/uid_1/memory.limit_in_bytes": f"{16 * GIB}\n"},
            16,
        ),
        (
            "4:cpu,memory:/x\n",
            {"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n"},
            512,
        ),
    ],
)
def test_memory_is_the_lowest_limit_of_all_groups_and_the_host(
    tmp_path: Path, group: str, files: dict[str, str], gib: int
) -> None:
    root = host(tmp_path, memory_gib=512, group=group, files=files)
    assert allowed_memory(root) == gib * GIB


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/u", "ext4"),
        ("/tmp/x", "tmpfs"),
        ("/tmpx", "ext4"),
        ("/scratch/u/deep", "lustre"),
        ("/tmp/big disk/x", "xfs"),
    ],
)
def test_the_deepest_mount_decides_the_kind_of_file_system(path: str, kind: str) -> None:
    assert kind_of(Path(path), MOUNTS) == kind


def test_a_later_mount_on_the_same_place_hides_the_earlier() -> None:
    assert kind_of(Path("/tmp/x"), f"{MOUNTS}/dev/vdb /tmp ext4 rw 0 0\n") == "ext4"
