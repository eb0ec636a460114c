"""A plan as a Compose file and as a pod of Kubernetes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from builder.host.run.model import CDI_NAME, IMAGE_UID, Reason, Rendered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from builder.host.run.model import RunPlan

_NAME = "torch"
# Sizes as engines write them; the same letter is a power of 1024 there, and of 1000 in Kubernetes.
_SIZE = re.compile(r"(\d+)([bkmg]?)b?", re.IGNORECASE)
_UNITS = {"": "", "b": "", "k": "Ki", "m": "Mi", "g": "Gi"}


def render_compose(plan: RunPlan) -> Rendered:
    """Return a Compose file with one service."""
    request = plan.request
    service: dict[str, Any] = {"image": request.image}
    if request.command:
        # Compose puts values in for what stands after a dollar sign.
        service["command"] = [_literal(word) for word in request.command]
    if request.interactive or request.terminal:
        service["stdin_open"], service["tty"] = request.interactive, request.terminal
    devices = [*(one.value for one in plan.cdi), *(_pair(one.mapping) for one in plan.devices)]
    mounts = [_mount(mount.source, mount.path, mount.read_only) for mount in plan.mounts]
    optional: dict[str, Any] = {
        "devices": devices,
        "group_add": [str(group.gid) for group in plan.groups],
        "ipc": plan.setting("ipc"),
        "shm_size": plan.setting("shm-size"),
        "user": plan.setting("user"),
        "userns_mode": plan.setting("userns"),
        "security_opt": [one for one in (plan.setting("security-opt"),) if one],
        "ulimits": {"memlock": -1} if plan.setting("ulimit") else None,
        "volumes": mounts,
        "environment": {one.name: _literal(one.value) for one in plan.environment},
    }
    service.update({name: value for name, value in optional.items() if value})
    document: dict[str, Any] = {"services": {_NAME: service}}
    volumes = [mount.source for mount in plan.mounts if mount.is_volume]
    if volumes:
        # The name itself, so that it is the same volume as with docker run.
        document["volumes"] = {name: {"name": name} for name in volumes}
    return Rendered("compose", _yaml(document), reasons=tuple(_compose_reasons(plan)))


def _literal(text: str) -> str:
    return text.replace("$", "$$")


def _pair(mapping: str) -> str:
    return mapping if ":" in mapping else f"{mapping}:{mapping}"


def _mount(source: str, path: str, read_only: bool) -> str:
    return f"{source}:{path}" + (":ro" if read_only else "")


def _compose_reasons(plan: RunPlan) -> Iterator[Reason]:
    yield from (Reason(f"devices: {one.value}", one.why) for one in plan.cdi)
    yield from (Reason(f"devices: {one.path}", one.why) for one in plan.devices)
    yield from (Reason(f"group_add: {one.gid}", one.why) for one in plan.groups)
    names = {
        "shm-size": "shm_size",
        "security-opt": "security_opt",
        "userns": "userns_mode",
        "ulimit": "ulimits",
    }
    for one in plan.settings:
        yield Reason(f"{names.get(one.name, one.name)}: {one.value}", one.why)
    yield from (Reason(f"volumes: {one.source}", one.why) for one in plan.mounts)
    yield from (Reason(f"environment: {one.name}", one.why) for one in plan.environment)


def render_kubernetes(plan: RunPlan) -> Rendered:
    """Return a pod that asks AMD's device plugin for GPUs; the plugin brings the nodes."""
    request = plan.request
    container: dict[str, Any] = {
        "name": _NAME,
        "image": request.image,
        "resources": {"limits": {CDI_NAME: plan.gpu_count or 1}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if request.command:
        container["args"] = [word.replace("$(", "$$(") for word in request.command]
    if request.interactive and request.terminal:
        container["stdin"], container["tty"] = True, True
    environment = [
        {"name": one.name, "value": one.value.replace("$(", "$$(")} for one in plan.environment
    ]
    if environment:
        container["env"] = environment
    volumes = tuple(_pod_volumes(plan))
    if volumes:
        container["volumeMounts"] = [
            {
                "name": one.name,
                "mountPath": one.path,
                **({"readOnly": True} if one.read_only else {}),
            }
            for one in volumes
        ]
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    security = dict(_pod_security(plan))
    if security:
        spec["securityContext"] = security
    if plan.setting("ipc"):
        spec["hostIPC"] = True
    if volumes:
        spec["volumes"] = [{"name": one.name, **one.source} for one in volumes]
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "rocm-torch"}, "spec": spec}
    return Rendered("kubernetes", _yaml(document), reasons=tuple(_pod_reasons(plan)))


def _pod_security(plan: RunPlan) -> Iterator[tuple[str, Any]]:
    user, _, group = (plan.setting("user") or str(IMAGE_UID)).partition(":")
    if user.isdecimal():
        yield "runAsUser", int(user)
    if group.isdecimal():
        yield "runAsGroup", int(group)
    if plan.groups:
        yield "supplementalGroups", [group.gid for group in plan.groups]


@dataclass(frozen=True, slots=True)
class _PodVolume:
    name: str
    path: str
    source: Mapping[str, Any]
    read_only: bool = False


def _pod_volumes(plan: RunPlan) -> Iterator[_PodVolume]:
    shm = plan.setting("shm-size")
    if shm:
        memory = {"emptyDir": {"medium": "Memory", "sizeLimit": _quantity(shm)}}
        yield _PodVolume("shm", "/dev/shm", memory)  # noqa: S108 - a path of the pod
    asked = plan.request.mounts
    for mount in (one for one in plan.mounts if one not in asked and not one.read_only):
        claim = {"persistentVolumeClaim": {"claimName": mount.source}}
        named = mount.is_volume and plan.request.cache
        yield _PodVolume("cache", mount.path, claim if named else {"emptyDir": {}})
    for number, mount in enumerate(asked):
        source: dict[str, Any] = {"persistentVolumeClaim": {"claimName": mount.source}}
        if not mount.is_volume:
            source = {"hostPath": {"path": mount.source}}
        yield _PodVolume(f"data{number}", mount.path, source, mount.read_only)


def _quantity(size: str) -> str:
    found = _SIZE.fullmatch(size)
    return found[1] + _UNITS[found[2].lower()] if found else size


def _pod_reasons(plan: RunPlan) -> Iterator[Reason]:
    why = "AMD's device plugin gives so many GPUs of the node; the pod names no device"
    yield Reason(f"resources.limits.{CDI_NAME}: {plan.gpu_count or 1}", why)
    why = "no process gets more rights than the container starts with, and seccomp stays on"
    yield Reason("containers.securityContext", why)
    yield Reason("securityContext.runAsUser", "the image's user, or that of --user")
    for group in plan.groups:
        why = f"{group.why}: every node of the pool has to have this number"
        yield Reason(f"securityContext.supplementalGroups: {group.gid}", why)
    for setting in plan.settings:
        if setting.name in ("shm-size", "ipc"):
            name = "volumes.shm" if setting.name == "shm-size" else "hostIPC"
            yield Reason(name, setting.why)
    if any(not mount.read_only for mount in plan.mounts):
        yield Reason("volumes.cache", "compiled kernels, for as long as the pod is there")


def _yaml(document: dict[str, Any]) -> str:
    import yaml  # here: what needs no document must not wait for it

    # Escaped beyond ASCII: PyYAML writes line ends of Unicode as they are and reads them as spaces.
    text: str = yaml.safe_dump(document, sort_keys=False, width=1000)
    return text
