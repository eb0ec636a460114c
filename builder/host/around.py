"""Asks this process and the programs of this machine for what no file tells.

Every program has a time limit and all are asked at once: a tool that hangs on a broken driver is
itself a finding, and must not hang the doctor.
"""

from __future__ import annotations

import json
import os
import platform
import pwd
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.host.snapshot.model import Engine, ToolOutput
from builder.host.snapshot.read import Surroundings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

TOOL_SECONDS = 10.0
ENGINE_SECONDS = 3.0
_MOST_TEXT = 20_000
_MOST_LINES = 200
_OURS = re.compile(r"amdgpu|kfd|\bdrm\b|IOMMU|x86/split lock", re.IGNORECASE)
_GPU_TOOLS = (("rocminfo",), ("amd-smi", "list"), ("rocm-smi",))
_ENGINES = (
    ("docker", "version", "--format", "{{json .Server}}"),
    ("docker", "info", "--format", "{{json .}}"),
    ("podman", "info", "--format", "json"),
    ("apptainer", "--version"),
)


def look_around(root: Path, environment: Mapping[str, str], *, inside: bool) -> Surroundings:
    """Return what this process is, and what the programs of this machine say.

    Args:
        root: where ``/dev`` is looked at; another than ``/`` is a stand-in, whose programs would
            speak of the real machine and are not asked.
        environment: of the caller.
        inside: whether this is a container, where engines and the kernel log are not asked.
    """
    uid = os.getuid()
    answers: dict[tuple[str, ...], ToolOutput] = {}
    if root == Path("/"):
        answers = _ask(_questions(root, inside=inside), environment)
    log = answers.get(("dmesg",))
    return Surroundings(
        environment=environment,
        uid=uid,
        groups=(*os.getgroups(), os.getgid()),
        db_groups=_database_groups(uid),
        engines=tuple(_engines(answers)),
        tools=tuple(answers[one] for one in _GPU_TOOLS if one in answers),
        dmesg=tuple(_kernel_lines(log.stdout)) if log else (),
    )


def owner_names(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words that tell whose machine this is, for taking them out of a saved state."""
    host = platform.node()
    names = [host, host.partition(".")[0], environment.get("USER", ""), _user(os.getuid()) or ""]
    return tuple(name for name in names if name)


def _questions(root: Path, *, inside: bool) -> list[tuple[str, ...]]:
    asked: list[tuple[str, ...]] = []
    # Without a device they say nothing that the files do not, and some take seconds for it.
    if (root / "dev/kfd").exists() or (root / "dev/dxg").exists():
        asked += _GPU_TOOLS
    if not inside:
        asked += [*_ENGINES, ("dmesg",)]
    return asked


def _ask(
    questions: Iterable[tuple[str, ...]], environment: Mapping[str, str]
) -> dict[tuple[str, ...], ToolOutput]:
    there = [one for one in questions if shutil.which(one[0], path=environment.get("PATH"))]
    if not there:
        return {}
    with ThreadPoolExecutor(len(there)) as pool:
        found = pool.map(lambda argv: _said(argv, environment), there)
        return dict(zip(there, found))  # noqa: B905 - images may have a Python without strict


def _said(argv: Sequence[str], environment: Mapping[str, str]) -> ToolOutput:
    limit = TOOL_SECONDS if tuple(argv) in _GPU_TOOLS else ENGINE_SECONDS
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit,
            env=dict(environment, LC_ALL="C"),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ToolOutput(argv[0], None, stderr=f"no answer within {limit:.0f} s")
    except OSError as error:
        return ToolOutput(argv[0], None, stderr=error.strerror or str(error))
    return ToolOutput(argv[0], done.returncode, _text(done.stdout), _text(done.stderr))


def _text(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    return text if len(text) <= _MOST_TEXT or text.startswith("{") else text[:_MOST_TEXT]


def _kernel_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if _OURS.search(line)][-_MOST_LINES:]


def _user(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a number that a container was started with
        return None


def _database_groups(uid: int) -> tuple[int, ...] | None:
    name = _user(uid)
    if name is None:
        return None
    return tuple(sorted(os.getgrouplist(name, pwd.getpwuid(uid).pw_gid)))


def _engines(answers: Mapping[tuple[str, ...], ToolOutput]) -> Iterable[Engine]:
    version, info, podman, apptainer = (_answer(answers, one) for one in _ENGINES)
    if info.get("ServerVersion"):
        security = " ".join(info.get("SecurityOptions") or ())
        yield Engine(
            "docker",
            rootless="name=rootless" in security,
            version=str(info["ServerVersion"]),
            runtime=info.get("DefaultRuntime"),
            user_namespaces="name=userns" in security,
            desktop="Docker Desktop" in str(info.get("OperatingSystem")),
            api=version.get("ApiVersion"),
            min_api=version.get("MinAPIVersion"),
        )
    host = podman.get("host")
    if isinstance(host, dict):
        yield Engine(
            "podman",
            rootless=bool((host.get("security") or {}).get("rootless")),
            version=(podman.get("version") or {}).get("Version"),
            runtime=(host.get("ociRuntime") or {}).get("name"),
        )
    if apptainer:
        yield Engine("apptainer", rootless=True, version=apptainer["said"].rpartition(" ")[2])


def _answer(
    answers: Mapping[tuple[str, ...], ToolOutput], question: tuple[str, ...]
) -> dict[str, Any]:
    answer = answers.get(question)
    if answer is None or answer.status != 0:
        return {}
    try:
        value = json.loads(answer.stdout)
    except ValueError:
        return {"said": answer.stdout.strip()}
    return value if isinstance(value, dict) else {}
