"""Rules about single instructions, and about what an instruction before them has set."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.errors import Problem
from builder.facts.upstream_tag import read_upstream_tag
from builder.plan.lint.model import Finding
from builder.plan.lint.shell import commands, has_pipe, pip_call
from builder.plan.lint.torch import check_pip, extra_index_of_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.plan.lint.dockerfile import Instruction
    from builder.plan.lint.model import Severity

_PIPEFAIL = re.compile(r"pipefail")
_DRIVER = re.compile(r"(?:[a-z0-9]+-dkms|linux-(?:headers|modules|image)[^\s;]*)")
_AMD_IMAGE = re.compile(r"(?:^|/)rocm/pytorch:")
_HOST = "a container uses the kernel of the host, and the driver is installed there"


@dataclass(frozen=True, slots=True)
class Words:
    """A rule about the text of RUN: what is looked for, and what to say of it."""

    code: str
    seen: re.Pattern[str]
    what: str
    why: str
    fix: str
    severity: Severity = "error"


_RUN_WORDS = (
    Words(
        "APT_KEY_REMOVED",
        re.compile(r"\bapt-key\b"),
        "apt-key is used",
        "Debian 13 and newer Ubuntu releases do not have it any more",
        "write the key to /etc/apt/keyrings/NAME.asc, and `[signed-by=...]` into the list",
    ),
    Words(
        "UNAUTHENTICATED_PACKAGES",
        re.compile(
            r"--allow-unauthenticated|trusted=yes|--nogpgcheck|gpgcheck=0|--allow-insecure-repo\w*"
        ),
        "packages are installed without a look at who signed them",
        "whoever stands between the archive and the build decides what is in the image",
        "fetch the key, compare its fingerprint, and name it with `signed-by` or `gpgkey`",
    ),
    Words(
        "PEP668",
        re.compile(r"--break-system-packages|EXTERNALLY-MANAGED"),
        "the Python of the distribution is changed by pip against its will",
        "apt owns that Python, and its next upgrade undoes the change or breaks on it",
        "install into the image's own environment, or make one with `python3 -m venv`",
    ),
    Words(
        "ARCH_OF_BUILDER",
        re.compile(r"\b(?:rocm_agent_enumerator|rocminfo)\b[^\n;&]*(?:\||\))"),
        "the targets to compile for are asked of the machine that builds",
        "a build machine mostly has no GPU, or another one: the result has no code for the user's",
        "set PYTORCH_ROCM_ARCH and GPU_ARCHS to the targets of the matrix",
    ),
    Words(
        "HARDCODED_RENDER_GID",
        re.compile(r"groupadd\s+(?:\S+\s+)*?(?:-g|--gid)[ =]?\d+\s+(?:\S+\s+)*?(?:render|video)\b"),
        "the group of the GPU nodes gets a fixed number",
        "each host has its own number for it",
        "leave it out: `rocm-torch run` gives the numbers of the host with --group-add",
        "warning",
    ),
)


def check_run(one: Instruction, where: str, *, pipefail: bool) -> Iterator[Finding]:
    """Judge a RUN; ``pipefail`` tells whether its shell has that option already."""
    for rule in _RUN_WORDS:
        found = rule.seen.search(one.value)
        if found:
            what = f"{rule.what} ({found[0].strip()[:80]})"
            problem = Problem(rule.code, what, where, rule.why, rule.fix)
            yield Finding(problem, rule.severity)
    for command in commands(one.value):
        yield from _driver(command, where)
        call = pip_call(command)
        if call is not None:
            yield from check_pip(call, where)
    if has_pipe(one.value) and not pipefail and not _PIPEFAIL.search(one.value):
        yield Finding(
            Problem(
                code="PIPE_WITHOUT_PIPEFAIL",
                what="a pipe hides the failure of every command in it but the last",
                where=where,
                why="a download that ends with 404 is then taken for an empty file",
                fix='begin the RUN with `set -o pipefail`, or write SHELL ["/bin/bash", "-o",'
                ' "pipefail", "-c"] before it',
            ),
            "warning",
        )


def _driver(command: tuple[str, ...], where: str) -> Iterator[Finding]:
    installs = "install" in command or command[0].endswith("amdgpu-install")
    named = [word for word in command if _DRIVER.fullmatch(word.partition("=")[0])]
    names = re.search(r"linux-headers", " ".join(command))
    if installs and (named or names):
        what = f"the image installs {', '.join(named) or 'linux-headers'}, which is of the kernel"
    elif command[0].endswith("amdgpu-install") and "--no-dkms" not in command:
        what = "amdgpu-install builds the kernel driver unless it is told not to"
    else:
        return
    fix = "leave it out, or call `amdgpu-install --no-dkms`; the driver belongs on the host"
    yield Finding(Problem("DKMS_IN_IMAGE", what, where, _HOST, fix))


def check_env(one: Instruction, where: str) -> Iterator[Finding]:
    """Judge an ENV or ARG."""
    if re.search(r"\b(PIP|UV)_EXTRA_INDEX_URL\b", one.value):
        yield extra_index_of_environment(where, "PIP_EXTRA_INDEX_URL")
    if one.keyword == "ENV" and re.search(r"\bHSA_OVERRIDE_GFX_VERSION\b", one.value):
        yield Finding(
            Problem(
                code="HSA_OVERRIDE_IN_IMAGE",
                what="HSA_OVERRIDE_GFX_VERSION is set for everybody who runs the image",
                where=where,
                why="it breaks the GPUs that need none, and each GPU needs another value",
                fix="leave it out; who needs it sets it for the container",
            )
        )
    if one.keyword == "ENV" and re.search(r"\bLD_LIBRARY_PATH\b", one.value):
        yield Finding(
            Problem(
                code="NEEDS_LD_LIBRARY_PATH",
                what="libraries are found through LD_LIBRARY_PATH only",
                where=where,
                why="sudo, cron, ssh and `apptainer --cleanenv` take it away",
                fix="write the folder to /etc/ld.so.conf.d/NAME.conf and run ldconfig",
            ),
            "warning",
        )


def check_from(one: Instruction, where: str, stages: frozenset[str]) -> Iterator[Finding]:
    """Judge a FROM: a base that moves by itself makes another image of the same text."""
    name = one.value.split()[0] if one.value else ""
    if not name or name.lower() in stages or name == "scratch" or "@" in name or "$" in name:
        return
    tag = name.rpartition("/")[2].partition(":")[2] or "latest"
    if tag == "latest" or tag.startswith("latest"):
        yield Finding(_floating_base(name, where), "warning")
    elif _AMD_IMAGE.search(name) and read_upstream_tag(tag).kind == "without-torch":
        yield Finding(
            Problem(
                code="BASE_WITHOUT_TORCH",
                what=f"{name} has no torch in it",
                where=where,
                why="tags of rocm/pytorch without a `_pytorch` part are bases to build torch on",
                fix="take a tag with `_pytorch_release_` and a version",
            )
        )


def _floating_base(name: str, where: str) -> Problem:
    return Problem(
        code="FLOATING_BASE",
        what=f"the base {name} is a tag that moves (latest)",
        where=where,
        why="it was seen to stay on an older ROCm after newer images were there, and to be broken",
        fix="name an exact tag, with its digest; `rocm-torch lock` records it",
    )
