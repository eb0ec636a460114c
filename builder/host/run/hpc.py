"""A plan as a command of Apptainer, and as a batch script of Slurm around it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from builder.host.run.command import shell_lines
from builder.host.run.model import Reason, Rendered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.host.run.model import RunPlan

# With --containall, /tmp inside is tmp below --workdir: caches there need no bind point in the
# image, and go with the job.
_INSIDE = "/tmp/rocm-torch"  # noqa: S108 - in the container, below the job's own folder
_CACHES = {
    "ROCM_TORCH_CACHE_DIR": _INSIDE,
    "MIOPEN_USER_DB_PATH": f"{_INSIDE}/miopen-db",
    "MIOPEN_CUSTOM_CACHE_DIR": f"{_INSIDE}/miopen-cache",
}
_CACHE_WHY = "MIOpen's SQLite breaks on NFS and Lustre: one set a job, on storage of the node"
_PORT = 29500
_SHOW = ("python", "-c", "import torch; print(torch.cuda.device_count())")


def render_apptainer(plan: RunPlan) -> Rendered:
    """Return the lines for Apptainer: the folders first, then the command."""
    work = plan.request.scratch or f"/tmp/rocm-torch-{plan.uid}"  # noqa: S108 - made private below
    before = (_folders(work), _private(work))
    reasons = tuple(_arguments(plan, work))
    argv = (
        "apptainer",
        "exec",
        *(one.argument for one in reasons),
        _source(plan.request.image),
        *(plan.request.command or ("bash",)),
    )
    return Rendered("apptainer", shell_lines((*before, argv)), argv, before, reasons)


def _folders(work: str) -> tuple[str, ...]:
    inner = f"{work}{_INSIDE}"
    return ("mkdir", "-p", "-m", "0700", work, inner, f"{inner}/miopen-db", f"{inner}/miopen-cache")


def _private(work: str) -> tuple[str, ...]:
    """Return the call that fails where somebody else made the folder first: it is not theirs."""
    return ("chmod", "0700", work)


def _source(image: str) -> str:
    return image if "://" in image or image.endswith(".sif") else f"docker://{image}"


def _arguments(plan: RunPlan, work: str) -> Iterator[Reason]:
    why = "no home, /tmp, environment or Python packages of the host get in"
    yield Reason("--containall", why)
    why = "room for /tmp and the home in the container; without it a tmpfs of 64 MB"
    yield Reason(f"--workdir={work}", why)
    devices = [one for one in plan.devices if not one.path.startswith("/dev/infiniband")]
    if plan.request.host_libraries:
        why = "--host-libraries: the devices, and libraries of the host that may not fit the image"
        yield Reason("--rocm", why)
    else:
        paths = [_bind(one.source, one.path) for one in devices]
        if paths:
            why = "the devices alone: --rocm would put libraries of the host before the image's"
            yield Reason(f"--bind={','.join(paths)}", why)
    for one in plan.devices:
        if one not in devices:
            yield Reason(f"--bind={_bind(one.source, one.path)}", one.why)
    for mount in plan.mounts:
        mode = ":ro" if mount.read_only else ""
        yield Reason(f"--bind={mount.source}:{mount.path}{mode}", mount.why)
    plugin = plan.request.fabric_plugin
    if plugin and plan.request.target == "slurm":
        why = "the site's network plugin for RCCL, read-only"
        yield Reason(f"--bind={plugin}:{plugin}:ro", why)
    given = {one.name for one in plan.environment}
    for name, value in _CACHES.items():
        if name not in given:
            yield Reason(f"--env={name}={value}", _CACHE_WHY)
    for variable in plan.environment:
        yield Reason(f"--env={variable.name}={variable.value}", variable.why)


def _bind(source: str, path: str) -> str:
    return source if source == path else f"{source}:{path}"


def fabric_variables(plan: RunPlan) -> Iterator[Reason]:
    """Yield what RCCL and libfabric need to be told on the network of the job.

    Source of the values for Slingshot: the user guides of LUMI and Frontier.
    """
    request = plan.request
    yield Reason("NCCL_DEBUG=INFO", "the log says which network RCCL took")
    yield Reason("NCCL_DEBUG_SUBSYS=INIT,NET", "and nothing more than that")
    if request.fabric == "cxi":
        yield Reason("NCCL_SOCKET_IFNAME=hsn", "RCCL meets over the fast network's interfaces")
        why = "GPU memory goes to the network card directly, where both are in one NUMA node"
        yield Reason("NCCL_NET_GDR_LEVEL=PHB", why)
        why = "with the default monitor of libfabric, jobs on cxi hang without a word"
        yield Reason("FI_MR_CACHE_MONITOR=userfaultfd", why)
        why = "the default size of the completion queue is too small for many ranks"
        yield Reason("FI_CXI_DEFAULT_CQ_SIZE=131072", why)
    if request.fabric_plugin:
        where = f"{request.fabric_plugin.rstrip('/')}/librccl-net.so"
        yield Reason(f"NCCL_NET_PLUGIN={where}", "the plugin that was bound, and no other")


def render_slurm(plan: RunPlan) -> Rendered:
    """Return a batch script: caches of the job on each node, then Apptainer under srun."""
    request = plan.request
    variables = tuple(fabric_variables(plan)) if request.nodes > 1 or request.fabric else ()
    arguments = tuple(_arguments(plan, "$JOB_DIR"))
    given = [_word(one.argument) for one in arguments]
    image = _word(_source(request.image))
    command = _torchrun(plan) if request.nodes > 1 else shlex.join(request.command or _SHOW)
    exports = [f"export APPTAINERENV_{_word(one.argument)}" for one in variables]
    lines = [
        *_directives(plan),
        "",
        "set -euo pipefail",
        "",
        "# Node-local, private, and gone with the job.",
        f"export JOB_DIR={_job_folder(request.scratch)}",
        *(
            f"srun --ntasks-per-node=1 {' '.join(map(_word, words))}"
            for words in (_folders("$JOB_DIR"), _private("$JOB_DIR"))
        ),
        """trap 'srun --ntasks-per-node=1 rm -rf -- "$JOB_DIR"' EXIT""",
        *([""] if exports else []),
        *exports,
        *(_meeting() if request.nodes > 1 else []),
        "",
        "srun --ntasks-per-node=1 apptainer exec \\",
        *(f"  {word} \\" for word in given),
        f"  {image} \\",
        f"  {command}",
    ]
    reasons = (*arguments, *(Reason(f"export {one.argument}", one.why) for one in variables))
    return Rendered("slurm", "\n".join(lines) + "\n", reasons=reasons)


def _word(text: str) -> str:
    """Quote a word of the script, in which the job's folder is a variable."""
    if "$JOB_DIR" in text:
        return f'"{text}"'
    return shlex.quote(text)


def _directives(plan: RunPlan) -> Iterator[str]:
    yield "#!/bin/bash"
    yield "#SBATCH --job-name=rocm-torch"
    yield f"#SBATCH --nodes={plan.request.nodes}"
    yield "#SBATCH --ntasks-per-node=1"
    yield f"#SBATCH --gpus-per-node={plan.gpu_count or 1}"
    yield "#SBATCH --time=01:00:00"
    yield "# Add --account and --partition of your site."


def _job_folder(scratch: str | None) -> str:
    start = "${TMPDIR:-/tmp}" if scratch is None else shlex.quote(scratch)
    return f'{start}/rocm-torch-"$SLURM_JOB_ID"'


def _meeting() -> Iterator[str]:
    yield ""
    yield 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)'
    yield "export MASTER_ADDR"


def _torchrun(plan: RunPlan) -> str:
    """Return torchrun around a Python program: one a node, which starts one process a GPU."""
    program = plan.request.command or _SHOW
    if program[0] not in ("python", "python3") or program[1:2] == ("-c",):
        return shlex.join(program)
    # What torchrun starts by itself is a file or a module; options of Python need the program.
    plain = not program[1:2] or not program[1].startswith("-") or program[1] == "-m"
    return " ".join(
        (
            f"torchrun --nnodes={plan.request.nodes} --nproc-per-node={plan.gpu_count or 1}",
            '--rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d',
            f'--rdzv-endpoint="$MASTER_ADDR:{_PORT}"',
            shlex.join(program[1:] if plain else ("--no-python", *program)),
        )
    )
