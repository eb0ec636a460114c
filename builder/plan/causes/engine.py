"""The container engine and its SDK: calls that cannot work on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.errors import Problem
from builder.plan.causes.model import Cause, Output, Pattern, Rule, regex

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEME = regex(r"Not supported URL scheme http\+(?:docker|unix)")


def sdk_too_old(output: Output) -> Iterator[Cause]:
    """Tell that two Python packages do not fit, which reads like a daemon that is away."""
    found = _SCHEME.search(output.text)
    if found is None:
        return
    named = [f"{name} {version}" for name, version in output.versions.items()]
    have = f" (installed: {', '.join(named)})" if named else ""
    yield Cause(
        Problem(
            code="DOCKER_SDK_TOO_OLD",
            what=f"the Python package docker does not fit to requests{have}",
            why="requests 2.32 changed what docker before 7.1 relied on; no engine was asked",
            fix='install "docker>=7.1" into this Python environment',
        ),
        position=found.start(),
    )


RULES: tuple[Rule, ...] = (
    sdk_too_old,
    Pattern(
        code="API_VERSION_PINNED",
        seen=regex(
            r"client version (?P<client>[\d.]+) is too old\. Minimum supported API version is"
            r" (?P<least>[\d.]+)"
        ),
        what="the engine refuses version {client} of its API: it speaks {least} and later",
        why="DOCKER_API_VERSION is set, or the client was told a fixed version",
        fix="unset DOCKER_API_VERSION, so that client and engine agree on a version of at least"
        " {least}",
    ),
    Pattern(
        code="GPUS_FLAG_ON_AMD",
        seen=regex(
            r"could not select device driver \"?\"? ?with capabilities: \[\[gpu\]\]"
            r"|unknown or invalid runtime name: nvidia|nvidia-container-cli: initialization error"
        ),
        what="the container was asked for with --gpus, or the NVIDIA runtime, on this host",
        why="that way is NVIDIA's; AMD's GPUs are device nodes",
        fix="use --device=/dev/kfd --device=/dev/dri and one --group-add for each group that owns"
        " them; `rocm-torch run` does",
    ),
    Pattern(
        code="CONTAINERD_PLATFORM",
        seen=regex(r"was found but does not provide (?:any|the specified) platform"),
        what="the engine holds this image in part, and cannot push it",
        why="a pull for one platform leaves an index whose other images are not there",
        fix="copy from registry to registry by digest (`docker buildx imagetools create`, skopeo,"
        " oras), without the engine in between",
    ),
    Pattern(
        code="REAPER_SOCKET",
        seen=regex(
            r"error while creating mount source path [\"']?/?\S*/?docker\.sock"
            r"|ryuk[^\n]*(?:port mapping|container exited|not started|permission denied)"
        ),
        what="the container that testcontainers cleans up with cannot reach the engine's socket",
        why="under a rootless engine or SELinux the socket is elsewhere, or refused",
        fix="set TESTCONTAINERS_DOCKER_SOCKET_OVERRIDE to the socket's path on the host;"
        " TESTCONTAINERS_RYUK_DISABLED=true does without that container",
        severity="warning",
    ),
    Pattern(
        code="DEVICE_NOT_THERE",
        seen=regex(
            r"error gathering device information while adding custom device \"(?P<node>[^\"]+)\""
        ),
        what="this host has no {node}",
        why="the driver is not loaded, or the host is WSL, whose device is /dev/dxg",
        fix="run `rocm-torch doctor` on this host",
    ),
)
