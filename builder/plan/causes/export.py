"""What BuildKit does after the last step: exports, attestations, caches; and room for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from builder.plan.causes.model import Cause, Output, Pattern, Rule, regex

if TYPE_CHECKING:
    from collections.abc import Iterator

_CACHE = Pattern(
    code="CACHE_EXPORT_FAILED",
    seen=regex(
        r"exporting (?:to GitHub Actions Cache|cache to [^\n]*)[\s\S]*?ERROR[^\n]*"
        r"|failed to (?:copy|upload)[^\n]*(?:blob\.core\.windows\.net|/_apis/artifactcache)[^\n]*"
    ),
    what="the build cache could not be written to where it is kept",
    why="the address that a CI gives for its cache is signed for about an hour, and a long build"
    " comes too late",
    fix="set `ignore-error=true` for the cache, or keep it in a registry",
)


def cache_export(output: Output) -> Iterator[Cause]:
    """Tell that only the cache was lost: a warning where the image came out."""
    for cause in _CACHE(output):
        yield replace(cause, severity="warning") if output.exported else cause


RULES: tuple[Rule, ...] = (
    Pattern(
        code="DISK_FULL",
        seen=regex(r"no space left on device|Disk quota exceeded|ENOSPC|\[Errno 28\]"),
        unless=regex(r"</torch_\w+>|/dev/shm|unable to write to file <"),
        what="the disk is full",
        why="an unpacked image takes two to three times its download, in the builder's store and"
        " in the layout; old images stay until somebody removes them",
        fix="look with `docker system df`; `rocm-torch prune --yes` removes what this program left"
        " behind, `docker buildx prune` the build cache",
    ),
    Pattern(
        code="SHM_TOO_SMALL",
        seen=regex(
            r"unable to write to file <(?P<file>[^>]+)>|/dev/shm[^\n]*No space left"
            r"|insufficient shared memory \(shm\)"
        ),
        what="the shared memory of the container is too small",
        why="an engine gives a container 64 MB of /dev/shm unless it is told otherwise",
        fix="start the container with --shm-size=16g or --ipc=host",
    ),
    Pattern(
        code="SBOM_TOO_LARGE_FOR_BUILDKIT",
        seen=regex(r"(?P<file>\S*sbom\S*\.json) exceeds (?P<limit>\d+) bytes"),
        what="BuildKit refuses the SBOM {file}: it is larger than {limit} bytes",
        why="attestations inside the image index have a fixed limit, and images with many files"
        " pass it",
        fix="build without --sbom (the cache holds all steps), and attach the SBOM afterwards as a"
        " referrer: `rocm-torch sbom` does that",
    ),
    Pattern(
        code="OUT_OF_MEMORY",
        seen=regex(
            r"exit code: 137|signal: killed|\bOOMKilled\b|Out of memory: Killed process"
            r"|c\+\+: fatal error: Killed|std::bad_alloc|MemoryError$"
        ),
        what="a process was killed, most likely because memory ran out",
        fix="build fewer cells at a time (`--jobs 1`), compile with fewer processes (MAX_JOBS), or"
        " give the machine more memory",
    ),
    cache_export,
    Pattern(
        code="NEEDS_BUILDKIT",
        seen=regex(
            r"the --(?P<option>mount|chmod|link|network|security) option requires BuildKit"
            r"|BuildKit is enabled but the buildx component is missing"
        ),
        what="the classic builder read a Dockerfile that needs BuildKit",
        fix="build through `docker buildx` (Debian: docker-buildx, Docker: docker-buildx-plugin)",
    ),
)
