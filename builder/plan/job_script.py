"""The batch script of a test job: Apptainer with the devices alone, caches on the node's disk."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

REPORT = "report.json"
EXIT = "exit"
NODE = "node"
STDERR = "stderr"

# Files that RCCL writes about itself, one a process.
RCCL = "rccl."
# Variables by which a cluster says which GPUs are whose.
MASKS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")

_INSIDE = "/mnt"

_SCRIPT = """\
#!/bin/bash
# Tests one image on one node. What it finds lies beside this script; the file `exit` comes last.
set -u
folder={folder}
hostname >"$folder/{node}"
local=${{SLURM_TMPDIR:-${{TMPDIR:-/tmp}}}}
work=$(mktemp -d "$local/rocm-torch-${{SLURM_JOB_ID:-0}}.XXXXXX") || exit 1
trap 'rm -rf -- "$work"' EXIT
# To a place that every image has: with --containall nothing can be made below /tmp or the home.
binds=(--bind "$folder:{inside}")
for node in /dev/kfd /dev/dri; do
    [[ ! -e $node ]] || binds+=(--bind "$node")
done
# The GPUs that Slurm gave to the job: --containall takes the caller's variables away.
for name in {masks}; do
    [[ -z ${{!name+set}} ]] || export "APPTAINERENV_$name=${{!name}}"
done
{exports}# A batch job has no terminal and a home that other ranks share: nothing of it goes in.
apptainer --quiet exec --containall --workdir "$work" "${{binds[@]}}" {sif} \\
    rocm-torch-selftest --level {level} --json --output {inside}/{report} \\
    >/dev/null 2>"$folder/{stderr}" &
# In the background, so that a signal of Slurm reaches this shell while it runs.
child=$!
stopped=
trap 'stopped=1; kill -TERM "$child" 2>/dev/null' TERM INT
wait "$child"
status=$?
# A test that was ended, or that left no report, has no result: the file stays away.
if [[ -n $stopped || ! -s $folder/{report} ]]; then
    wait "$child"
    exit 1
fi
printf '%s\\n' "$status" >"$folder/{exit}.part" && mv "$folder/{exit}.part" "$folder/{exit}"
exit "$status"
"""


# What fabrics need that is known to hang without it. Source: LUMI's AI guide, pull request 118.
FABRIC_ENVIRON: Mapping[str, Mapping[str, str]] = {
    "cxi": {"FI_MR_CACHE_MONITOR": "userfaultfd"},
}


def fabric_environ(fabric: str | None) -> dict[str, str]:
    """Return what ranks on a machine with ``fabric`` are given, and that RCCL says what it took."""
    if fabric is None:
        return {}
    said = f"{_INSIDE}/{RCCL}%h.%p"
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": said, **FABRIC_ENVIRON.get(fabric, {})}


def job_script(
    folder: Path, sif: Path, level: str, environ: Mapping[str, str] | None = None
) -> str:
    """Return the script of a job that tests ``sif`` and leaves what it found in ``folder``.

    Args:
        folder: on a file system that the nodes share with the submitting host.
        sif: there too.
        level: of the self-test.
        environ: variables for the container.
    """
    exports = (
        f"export APPTAINERENV_{name}={shlex.quote(value)}\n"
        for name, value in sorted((environ or {}).items())
    )
    return _SCRIPT.format(
        folder=shlex.quote(str(folder)),
        sif=shlex.quote(str(sif)),
        level=shlex.quote(level),
        exports="".join(exports),
        masks=" ".join(MASKS),
        inside=_INSIDE,
        report=REPORT,
        exit=EXIT,
        node=NODE,
        stderr=STDERR,
    )
