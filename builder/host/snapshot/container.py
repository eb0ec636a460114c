"""Which kind of container this is, if any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.host.snapshot.text import first_line, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def container_of(root: Path, environment: Mapping[str, str]) -> str | None:
    """Return ``apptainer``, ``kubernetes``, ``podman``, ``docker``, ``lxc`` or ``None``.

    The nearest one counts: what is inside Apptainer inside Docker gets Apptainer's advice.
    """
    if "APPTAINER_CONTAINER" in environment or "SINGULARITY_CONTAINER" in environment:
        return "apptainer"
    if (root / ".singularity.d").is_dir():
        return "apptainer"
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    told = (read_text(root / "proc/1/environ") or "").split("\0")
    if "container=lxc" in told or environment.get("container") == "lxc":
        identity = first_line(root / "proc/self/uid_map")
        mapped = identity is not None and identity.split()[:2] != ["0", "0"]
        return "lxc-unprivileged" if mapped else "lxc"
    return None
