"""Advice about groups is given only where joining the group would open a node."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from builder.host.rules import diagnose
from builder.host.snapshot import DeviceNode, HostSnapshot

GROUPS = (44, 105, 992)
nodes = st.tuples(
    *(
        st.builds(
            DeviceNode,
            path=st.just(path),
            gid=st.sampled_from(GROUPS),
            mode=st.sampled_from([0o600, 0o640, 0o660, 0o666, 0o620]),
        )
        for path in ("/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129")
    )
)


@given(
    nodes,
    st.sets(st.sampled_from(GROUPS)),
    st.sampled_from([None, "docker", "podman", "kubernetes", "lxc", "apptainer"]),
)
def test_a_group_is_advised_exactly_where_it_opens_a_node_that_is_closed(
    found: tuple[DeviceNode, ...], mine: set[int], container: str | None
) -> None:
    snapshot = HostSnapshot(
        uid=1000, process_groups=tuple(sorted(mine)), nodes=found, container=container
    )
    diagnosis = diagnose(snapshot)
    closed = [
        one
        for one in found
        if not (one.gid in mine and one.mode & 0o060 == 0o060) and one.mode & 0o006 != 0o006
    ]
    opens = {one.gid for one in closed if one.mode & 0o060 == 0o060 and one.gid not in mine}
    fixes = " ".join(one.fix for one in diagnosis.findings)
    advised = set(map(int, re.findall(r"--group-add (\d+)", fixes)))
    assert advised <= opens
    if container in {"docker", "podman"}:
        assert advised == opens
    barred = any(one.mode & 0o060 != 0o060 for one in closed)
    assert diagnosis.has("NODE_MODE_CLOSED") == barred
    assert (diagnosis.verdict == "fail") == bool(closed)


def test_a_node_without_access_for_its_group_is_no_matter_of_groups() -> None:
    snapshot = HostSnapshot(
        uid=1000,
        process_groups=(1000, 992),
        container="docker",
        nodes=(DeviceNode("/dev/kfd", gid=992, mode=0o600),),
    )
    (finding,) = diagnose(snapshot).findings
    assert finding.code == "NODE_MODE_CLOSED"
    assert "0660" in finding.fix
    assert "--group-add" not in finding.fix
