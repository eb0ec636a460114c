"""All rules in one table, and what they say together: the cause first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from builder.host.rules import (
    apptainer,
    containers,
    kernel,
    masks,
    namespaces,
    nodes,
    opening,
    overrides,
    presence,
    python,
    speed,
    tools,
    wsl,
)
from builder.host.rules.ask import ASKED, told
from builder.host.rules.facts import HostFacts
from builder.host.rules.model import SEVERITIES, Diagnosis, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.host.rules.model import Rule
    from builder.host.snapshot.model import HostSnapshot

# From what must hold first to what only matters once the rest does. The order breaks ties.
RULES: tuple[Rule, ...] = (
    wsl.dxg_missing, wsl.detection_off, wsl.dxg_incomplete, wsl.dxg,
    kernel.secure_boot, kernel.bound_to_vfio, kernel.firmware_missing, kernel.init_failed,
    kernel.module_not_loaded, presence.kfd_missing_on_host, presence.nothing_here,
    containers.docker_desktop, presence.kfd_missing, masks.toolkit_variable,
    namespaces.group_dropped, containers.lxc_unmapped, opening.selinux_denied,
    opening.policy_denied, nodes.group_not_active, nodes.kfd_owned_by_root,
    nodes.mode_closed, nodes.kfd_permission,
    nodes.kfd_permission_told, nodes.render_permission, opening.kfd_eperm, opening.kfd_einval,
    opening.kfd_enomem, opening.kfd_enxio, opening.kfd_enoent, opening.kfd_other,
    opening.render_refused, kernel.topology_empty, kernel.kernel_too_old,
    presence.render_nodes_none,
    containers.group_by_name, containers.device_not_found, presence.render_node_missing,
    masks.mask_pci, masks.mask_word, masks.mask_empty, overrides.override_empty,
    overrides.override_malformed, overrides.override_wrong_family, overrides.override_mixed,
    overrides.image_lacks_target, overrides.igpu_shadows, apptainer.host_libraries,
    apptainer.host_tensile, python.cuda_build, python.glibcxx, tools.no_kernel_text,
    containers.shm_too_small, containers.api_version, apptainer.tmp_too_small, containers.memlock,
    nodes.caller_cannot_open, namespaces.rootless_needs_crun, namespaces.rootless_docker,
    namespaces.userns_remap, containers.lxc_foreign_group, containers.cdi_stale,
    masks.mask_out_of_range, masks.masks_both, masks.hip_cuda_differ, masks.mask_set_empty,
    masks.uuid_for_hip, overrides.override_needless, overrides.override_unsafe,
    kernel.driver_outside_window, kernel.gpu_reset, kernel.page_fault, kernel.memory_errors,
    kernel.wrong_machine, kernel.old_radeon, tools.tool_hangs, tools.no_module_text,
    tools.out_of_resources, tools.order_differs, python.library_path, python.python_path,
    python.preload, python.extra_index, containers.reaper_socket, apptainer.unknown_names,
    containers.disk_low, containers.inodes_low, speed.power_level, speed.link_narrow,
    speed.numa_balancing, speed.caches_closed, speed.caches_remote, speed.untuned,
    nodes.node_groups_differ, nodes.node_group_unnamed, opening.selinux_boolean,
    kernel.in_tree_driver, kernel.other_vendor, overrides.igpu_beside, tools.smi_is_no_proof,
    tools.rocm_smi_gone, containers.seccomp_numa, speed.power_manual, speed.iommu,
    speed.other_processes, speed.little_shared_memory,
)  # fmt: skip


def diagnose(snapshot: HostSnapshot, facts: HostFacts = HostFacts()) -> Diagnosis:  # noqa: B008 - frozen
    """Return what all rules say of a snapshot, the cause first, each followed by what it explains.

    Args:
        snapshot: a host, or the inside of a container.
        facts: what is known of the world and of the image.
    """
    found: list[Finding] = []
    for rule in RULES:
        found.extend(finding for finding in _said(rule, snapshot, facts) if finding not in found)
    ordered = tuple(_ordered(found, told(snapshot, ASKED)))
    return Diagnosis(_verdict(ordered), ordered)


def _said(rule: Rule, snapshot: HostSnapshot, facts: HostFacts) -> Iterator[Finding]:
    said = rule(snapshot, facts)
    if isinstance(said, Finding):
        yield said
    elif said is not None:
        yield from said


def _ordered(found: list[Finding], asked: str) -> Iterator[Finding]:
    """Yield causes by severity and, right behind each, what follows from it."""
    order = {id(one): n for n, one in enumerate(found)}
    causes: dict[str, str] = {}
    for one in found:
        for code in one.explains:
            if code != one.code and _root(one.code, causes) != code:
                causes.setdefault(code, one.code)
    roots = [one for one in found if one.code not in causes]
    roots.sort(
        key=lambda one: (
            SEVERITIES.index(one.severity),
            not _answers(one, asked),
            order[id(one)],
        )
    )
    for root in roots:
        yield root
        for one in found:
            if one.code in causes and _root(one.code, causes) == root.code and _first(root, roots):
                yield replace(one, follows_from=root.code)


def _answers(one: Finding, asked: str) -> bool:
    """Tell whether its evidence is the message that somebody asked about."""
    return any(line in asked for line in one.evidence)


def _first(root: Finding, roots: list[Finding]) -> bool:
    """Tell whether it is the first with its code: what follows is told once."""
    return next(one for one in roots if one.code == root.code) is root


def _root(code: str, causes: dict[str, str]) -> str:
    seen = {code}
    while code in causes and causes[code] not in seen:
        code = causes[code]
        seen.add(code)
    return code


def _verdict(findings: tuple[Finding, ...]) -> str:
    if any(one.severity == "error" for one in findings):
        return "fail"
    return "incomplete" if any(one.code == "GPU_NOT_FOUND" for one in findings) else "pass"
