"""How a container gets at this host's GPUs: one plan, and a renderer for each target.

Pure: the snapshot and the request are values, and so is what comes out. Nothing is started here.
"""

from builder.host.run.command import render_command, render_devcontainer
from builder.host.run.devices import no_gpu
from builder.host.run.documents import render_compose, render_kubernetes
from builder.host.run.hpc import render_apptainer, render_slurm
from builder.host.run.model import (
    SHM_SIZE,
    TARGETS,
    EngineKind,
    Reason,
    Rendered,
    RunPlan,
    RunRequest,
    Target,
)
from builder.host.run.plan import plan_run

_RENDERERS = {
    "docker": render_command,
    "podman": render_command,
    "apptainer": render_apptainer,
    "compose": render_compose,
    "kubernetes": render_kubernetes,
    "slurm": render_slurm,
    "devcontainer": render_devcontainer,
}


def render_plan(plan: RunPlan) -> Rendered:
    """Return the plan as its target reads it."""
    return _RENDERERS[plan.request.target](plan)


__all__ = [
    "SHM_SIZE",
    "TARGETS",
    "EngineKind",
    "Reason",
    "Rendered",
    "RunPlan",
    "RunRequest",
    "Target",
    "no_gpu",
    "plan_run",
    "render_plan",
]
