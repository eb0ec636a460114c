"""What the output of a run under Apptainer says: of binds, and of libraries of the host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from builder.report.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LIBS = "/.singularity.d/libs"
_DEVICES = "--bind /dev/kfd --bind /dev/dri"
_WITHOUT = f"run without --rocm, with the devices alone: {_DEVICES}"
_VERSION = re.compile(r"version [`']([^`']+)'? not found \(required by ([^)\s]+)\)")
_SYMBOL = re.compile(r"(/\S+?): undefined symbol: ([^\s,]+)")
_INVALID = re.compile(
    r"(/\S+?): (invalid ELF header|file too short|cannot open shared object file)"
)
_SKIPPED = re.compile(r"skipping mount of ([^\s:]+)")
_NO_SOURCE = re.compile(
    r"(?:mount source|could not mount|unable to mount|stat) ([/][^\s:]+)"
    r"(?:: no such| doesn't exist)"
)
_MISMATCH = re.compile(r"invalid device function|hipErrorNoBinaryForGpu|HSA_STATUS_ERROR", re.I)


@dataclass(frozen=True, slots=True)
class ModeRun:
    """How one run went: its flags, and what it said where it failed."""

    flags: tuple[str, ...]
    error: str | None


def loader_findings(text: str) -> tuple[Finding, ...]:
    """Find libraries of the host that do not fit the image, with the symbol that breaks.

    Args:
        text: what a program in the container wrote to standard error.
    """
    named = [(path, f"needs the symbol version {what}") for what, path in _VERSION.findall(text)]
    named += [(path, f"needs the symbol {what}") for path, what in _SYMBOL.findall(text)]
    named += [(path, f"does not load: {what}") for path, what in _INVALID.findall(text)]
    return tuple(
        _host_library(path, reason)
        for path, reason in dict.fromkeys(named)
        if path.startswith(_LIBS)
    )


def _host_library(path: str, reason: str) -> Finding:
    return Finding(
        code="APPTAINER_HOST_LIB",
        severity="error",
        summary=f"{path} is a library of the host that --rocm put before the image's own, and it"
        f" {reason}, which the image does not have",
        fix=_WITHOUT,
    )


def bind_findings(text: str) -> tuple[Finding, ...]:
    """Find sources of binds that are not there; Apptainer goes on with a warning and so do we not.

    Args:
        text: what Apptainer wrote to standard error.
    """
    gone = dict.fromkeys((*_SKIPPED.findall(text), *_NO_SOURCE.findall(text)))
    return tuple(
        Finding(
            code="BIND_SOURCE_MISSING",
            severity="error",
            summary=f"{path} is in the list of binds and not on this host, so the container lacks"
            " it",
            fix="take it off the binds of the site or of the job (APPTAINER_BIND), and name no path"
            " with a version in it",
        )
        for path in gone
    )


def mode_findings(runs: Sequence[ModeRun]) -> tuple[Finding, ...]:
    """Compare runs with and without ``--rocm``: where only the flag fails, it is the host's."""
    failed = [run for run in runs if "--rocm" in run.flags and run.error]
    well = any("--rocm" not in run.flags and run.error is None for run in runs)
    if not failed or not well:
        return ()
    error = (failed[0].error or "").strip().splitlines()[-1]
    why = ": libraries of the host and of the image are mixed" if _MISMATCH.search(error) else ""
    return (
        Finding(
            code="APPTAINER_HOST_LIB",
            severity="warn",
            summary=f"with --rocm it fails ({error}), without --rocm it works{why}",
            fix=_WITHOUT,
        ),
    )


def probe_findings(probe: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return what the probe of a SIF found that comes from the host (``engines/sif_probe.py``)."""
    found = [
        Finding(
            code="USER_SITE_SHADOWS",
            severity="error",
            summary=f"{shadow['path']} is found before the image's {shadow['module']}"
            + (f" ({shadow['hides']})" if shadow["hides"] else ""),
            fix="set PYTHONNOUSERSITE=1 and no PYTHONPATH, or run with --containall or --no-home",
        )
        for shadow in probe["shadows"]
    ]
    for library in probe["host_libraries"]:
        found += _library_findings(library)
    mapped = probe.get("mapped_from_host") or []
    if mapped:
        found.append(
            Finding(
                code="HOST_LIB_MAPPED",
                severity="warn",
                summary=f"torch runs with libraries of the host: {', '.join(mapped)}",
                fix=_WITHOUT,
            )
        )
    return (*found, *_cache_findings(probe["caches"]))


def _library_findings(library: Mapping[str, str]) -> tuple[Finding, ...]:
    path, error = library["path"], library["error"]
    if path.startswith(_LIBS):
        if error:
            return loader_findings(error) or (_host_library(path, f"does not load ({error})"),)
        if library["hides"]:
            return (
                Finding(
                    code="HOST_LIB_SHADOWS",
                    severity="warn",
                    summary=f"{path} of the host is found before the image's {library['hides']}",
                    fix=_WITHOUT,
                ),
            )
        return ()
    if not (error or library["hides"]):
        return ()
    tail = f"does not load there ({error})" if error else f"hides the image's {library['hides']}"
    return (
        Finding(
            code="HOST_LIBRARY_PATH",
            severity="error" if error else "warn",
            summary=f"{path} is found through LD_LIBRARY_PATH and {tail}",
            fix="unset LD_LIBRARY_PATH, APPTAINERENV_LD_LIBRARY_PATH and"
            " SINGULARITYENV_LD_LIBRARY_PATH before the run",
        ),
    )


def _cache_findings(caches: Mapping[str, Any]) -> tuple[Finding, ...]:
    found = []
    if not caches["wished_writable"]:
        place = caches["state"] or "nowhere"
        found.append(
            Finding(
                code="CACHE_NOT_WRITABLE",
                severity="note",
                summary=f"{caches['wished']} cannot be written (read-only or full), so caches"
                f" are in {place}",
                fix="set ROCM_TORCH_CACHE_DIR to a folder of the job on the node's own disk",
            )
        )
    if caches["network"]:
        found.append(
            Finding(
                code="CACHE_ON_NETWORK",
                severity="warn",
                summary=f"{', '.join(caches['network'])} lie on a network file system, where the"
                " databases of several ranks damage each other",
                fix="set ROCM_TORCH_CACHE_DIR to a folder of the job on the node's own disk",
            )
        )
    return tuple(found)
