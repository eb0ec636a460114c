"""What the output of a job on many GPUs says: the network it really used, databases, hangs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from builder.plan.job_script import FABRIC_ENVIRON
from builder.report.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

_NETWORK = re.compile(r"Using network (?:(AWS )?)([A-Za-z][\w .-]*)")
_CHANNEL = re.compile(r"via (NET/[\w ]+)")
_NO_PLUGIN = re.compile(r"No plugin found \(([^)]+)\)|Could not find: ?(\S*net\S*\.so)", re.I)
_PROVIDER = re.compile(r"(?:Selected [Pp]rovider is|NET/OFI .*?provider:?) (\w+)")
_TCP = ("socket", "tcp")
# Databases of MIOpen are SQLite, and what SQLite says of a damaged or locked file is all there is.
_DATABASE = re.compile(
    r"database disk image is malformed|disk I/O error|database is locked|file is not a database",
    re.I,
)
_MIOPEN = re.compile(r"miopen|kern_db|sqlite", re.I)
_LOCAL = "a folder of the job on the node's own disk"


@dataclass(frozen=True, slots=True)
class DistributedRun:
    """A run of several ranks.

    Attributes:
        output: standard output and error of all ranks.
        fabric: what the machine is declared to have, such as ``cxi``; None for plain Ethernet.
        environ: the ranks' variables.
        silent_seconds: how long no rank has said anything when the run was ended; None where it
            ended by itself.
    """

    output: str
    fabric: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    silent_seconds: float | None = None


def distributed_findings(run: DistributedRun) -> tuple[Finding, ...]:
    """Return all that can be said about a run of several ranks."""
    return (*network_findings(run), *database_findings(run.output), *hang_findings(run))


def network_findings(run: DistributedRun) -> tuple[Finding, ...]:
    """Find a fall back to TCP on a machine that has a fabric: right results, a tenth of the speed.

    RCCL says which network it took only with ``NCCL_DEBUG=INFO``.
    """
    if run.fabric is None:
        return ()
    networks = [match.group(2).strip() for match in _NETWORK.finditer(run.output)]
    networks += [name.removeprefix("NET/") for name in _CHANNEL.findall(run.output)]
    networks += _PROVIDER.findall(run.output)
    slow = [name for name in networks if name.lower().startswith(_TCP)]
    if not slow:
        return ()
    plugin = next((a or b for a, b in _NO_PLUGIN.findall(run.output)), "librccl-net.so")
    return (
        Finding(
            code="RCCL_TCP_FALLBACK",
            severity="error",
            summary=f"RCCL uses the network {slow[0]} on a machine with {run.fabric}: the plugin"
            f" {plugin} was not found or has no provider for {run.fabric}",
            fix=f"bind the site's libfabric and its RCCL plugin with the {run.fabric} provider into"
            " the container, put both on LD_LIBRARY_PATH, and set NCCL_NET_PLUGIN",
        ),
    )


def database_findings(text: str) -> tuple[Finding, ...]:
    """Find a damaged or contended MIOpen database: the site's storage, not the image."""
    match = _DATABASE.search(text)
    if match is None or not _MIOPEN.search(text):
        return ()
    return (
        Finding(
            code="MIOPEN_DB",
            severity="error",
            summary=f"MIOpen's database cannot be used ({match.group(0)}): ranks or jobs share it"
            " on a network file system, which is no fault of the image",
            fix=f"delete the database, and set MIOPEN_USER_DB_PATH and MIOPEN_CUSTOM_CACHE_DIR to"
            f" {_LOCAL} (ROCM_TORCH_CACHE_DIR sets both)",
        ),
    )


def hang_findings(run: DistributedRun) -> tuple[Finding, ...]:
    """Judge a run that was ended because no rank said anything any more."""
    if run.silent_seconds is None:
        return ()
    wanted = FABRIC_ENVIRON.get(run.fabric or "", {})
    missing = [f"{name}={value}" for name, value in wanted.items() if name not in run.environ]
    if missing:
        fix = f"set {' '.join(missing)} for all ranks: without it runs over {run.fabric} hang"
    else:
        fix = "set NCCL_DEBUG=INFO and TORCH_NCCL_TRACE_BUFFER_SIZE=2000, and look which rank waits"
        if run.fabric:
            fix += "; FI_MR_CACHE_MONITOR is set, so look at the registration of memory last"
    return (
        Finding(
            code="DIST_HANG",
            severity="error",
            summary=f"no rank said anything for {run.silent_seconds:.0f} s, and none ended",
            fix=fix,
        ),
    )
