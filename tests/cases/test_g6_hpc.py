"""Field cases of group G6: Apptainer and HPC. Each test carries the id of the report it covers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builder.engines.apptainer import Squash
from builder.errors import Problem, RefusedError
from builder.host.mounts import Folder
from builder.host.scratch import choose, misnamed
from builder.plan.job_script import job_script
from builder.plan.legs import Leg, check_legs
from builder.report.apptainer_output import (
    ModeRun,
    bind_findings,
    loader_findings,
    mode_findings,
    probe_findings,
)
from builder.report.distributed_output import DistributedRun, distributed_findings
from builder.report.sif_failures import conversion_problem

if TYPE_CHECKING:
    from builder.report.findings import Finding

GIB = 1 << 30
LIBS = "/.singularity.d/libs"


def case(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case_id", [name])


def the_one(findings: tuple[Finding, ...], code: str) -> str:
    """Return what is said by the only finding, which must be of that code."""
    assert [finding.code for finding in findings] == [code]
    return str(findings[0])


@case("g6-01-rocm-bind-glibc")
@pytest.mark.parametrize(
    ("error", "library", "symbol"),
    [
        (
            "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.33' not found"
            f" (required by {LIBS}/libdrm_amdgpu.so.1)",
            "libdrm_amdgpu.so.1",
            "GLIBC_2.33",
        ),
        (
            "OSError: /usr/lib64/libstdc++.so.6: version `GLIBCXX_3.4.30' not found"
            f" (required by {LIBS}/libamdhip64.so.6)",
            "libamdhip64.so.6",
            "GLIBCXX_3.4.30",
        ),
        (
            f"OSError: {LIBS}/librocblas.so.4: undefined symbol: hipGetProcAddress",
            "librocblas.so.4",
            "hipGetProcAddress",
        ),
    ],
)
def test_a_library_of_the_host_that_rocm_put_in_is_named_with_the_symbol_that_breaks(
    case_id: str, error: str, library: str, symbol: str
) -> None:
    said = the_one(loader_findings(error), "APPTAINER_HOST_LIB")
    assert "--rocm" in said
    assert f"{LIBS}/{library}" in said
    assert symbol in said
    assert "upgrade glibc" not in said


@case("g6-01-rocm-bind-glibc")
def test_a_loader_error_of_the_images_own_library_is_not_blamed_on_the_host(case_id: str) -> None:
    text = "/lib/libc.so.6: version `GLIBC_2.38' not found (required by /opt/rocm/lib/libhsa.so.1)"
    assert loader_findings(text) == ()


@case("g6-02-rocm-flag-mixed-versions")
def test_a_program_that_works_without_rocm_only_is_told_so(case_id: str) -> None:
    runs = [ModeRun(("--rocm",), "HIP error: invalid device function"), ModeRun((), None)]
    findings = mode_findings(runs)
    said = the_one(findings, "APPTAINER_HOST_LIB")
    assert findings[0].severity == "warn"
    assert "without --rocm" in said
    assert "invalid device function" in said
    assert "--bind /dev/kfd --bind /dev/dri" in said


@case("g6-02-rocm-flag-mixed-versions")
@pytest.mark.parametrize("error", ["HIP error: invalid device function", None])
def test_what_fails_or_works_both_ways_says_nothing_about_the_flag(
    case_id: str, error: str | None
) -> None:
    assert mode_findings([ModeRun(("--rocm",), error), ModeRun((), error)]) == ()


@case("g6-02-rocm-flag-mixed-versions")
def test_the_libraries_of_the_host_that_torch_maps_are_listed(case_id: str) -> None:
    caches = {"state": "/x", "wished": "/x", "wished_writable": True, "network": []}
    mapped = [f"{LIBS}/libamdhip64.so.6", f"{LIBS}/libhsa-runtime64.so.1"]
    probe = {"shadows": [], "host_libraries": [], "mapped_from_host": mapped, "caches": caches}
    said = the_one(probe_findings(probe), "HOST_LIB_MAPPED")
    assert all(path in said for path in mapped)


@case("g6-03-tmpdir")
@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        (Folder(Path("/tmp"), "tmpfs", 8 * GIB), "tmpfs"),
        (Folder(Path("/scratch"), "ext4", 100 * GIB), "100.0 GiB free"),
        (Folder(Path("/scratch"), "ext4", 900 * GIB, runs=False), "noexec"),
        (Folder(Path("/scratch"), "lustre", 900 * GIB, inodes=5000), "5000 inodes"),
        (Folder(Path("/scratch"), "ext4", 900 * GIB, writable=False), "cannot be written"),
    ],
)
def test_a_place_without_room_is_refused_before_the_start_with_the_right_names(
    case_id: str, folder: Folder, reason: str
) -> None:
    environ = {"APPTAINER_CACHEDIR": "/scratch/u/cache", "SINGULARITY_TEMPDIR": "/scratch/u/tmp"}
    found = choose([folder], 45 * GIB, environ)
    assert isinstance(found, Problem)
    assert found.code == "SIF_TMP_TOO_SMALL"
    assert reason in str(found)
    assert "APPTAINER_TMPDIR" in str(found)
    assert "SINGULARITY_TEMPDIR is not a known name" in str(found)


@case("g6-03-tmpdir")
def test_the_first_place_with_room_is_taken_and_a_named_one_is_not_passed_over(
    case_id: str,
) -> None:
    small = Folder(Path("/tmp"), "tmpfs", 8 * GIB)
    large = Folder(Path("/scratch"), "xfs", 113 * GIB)
    assert choose([small, large], 45 * GIB, {}) == large
    named = replace(small, named="APPTAINER_TMPDIR")
    assert isinstance(choose([named, large], 45 * GIB, {}), Problem)


@case("g6-03-tmpdir")
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("APPTAINER_TMPDIR", False),
        ("SINGULARITY_CACHEDIR", False),
        ("APPTAINER_BIND", False),
        ("TEMPDIR", False),
        ("APPTAINER_TEMPDIR", True),
        ("SINGULARITY_TMP_DIR", True),
        ("APPTAINER_CACHE", True),
        ("SINGULARITY_CACHE_DIR", True),
    ],
)
def test_names_that_look_like_a_folders_and_are_none_are_told(
    case_id: str, name: str, wrong: bool
) -> None:
    assert bool(misnamed({name: "/x"})) is wrong


@case("g6-04-mksquashfs-killed")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "FATAL: While performing build: while creating squashfs: create command failed:"
            " signal: killed",
            255,
        ),
        ("", 137),
        ("", -9),
    ],
)
def test_a_conversion_killed_for_memory_says_how_much_it_had_and_what_to_set(
    case_id: str, text: str, code: int
) -> None:
    found = conversion_problem(text, code, sif="x.sif", memory=8 * GIB, temporary="/scratch")
    assert found.code == "SIF_OOM"
    assert "-mem" in str(found)
    assert "8 GiB" in str(found)


@case("g6-04-mksquashfs-killed")
def test_a_crash_under_proot_is_told_with_the_variable_that_avoids_it(case_id: str) -> None:
    found = conversion_problem(
        "proot info: vpid 1: terminated", 139, sif="x", memory=1, temporary="/"
    )
    assert found.code == "SIF_CRASHED"
    assert "APPTAINER_IGNORE_PROOT" in str(found)


@case("g6-04-mksquashfs-killed")
def test_mksquashfs_is_bounded_in_memory_and_cores(case_id: str) -> None:
    words = Squash(processors=3, memory=4 * GIB).words
    assert "-mem 4096M" in words
    assert "-processors 3" in words


@case("g6-05-miopen-sqlite")
@pytest.mark.parametrize(
    "error",
    [
        "MIOpen Error: kern_db.hpp:147: Internal error while accessing SQLite database:"
        " database disk image is malformed",
        "MIOpen(HIP): Error [Prepare] sqlite_db.cpp: disk I/O error",
        "MIOpen Error: sqlite_db: database is locked",
    ],
)
def test_a_damaged_database_of_miopen_is_the_sites_storage_and_not_the_image(
    case_id: str, error: str
) -> None:
    said = the_one(distributed_findings(DistributedRun(error)), "MIOPEN_DB")
    assert "MIOPEN_USER_DB_PATH" in said
    assert "no fault of the image" in said


@case("g6-05-miopen-sqlite")
def test_a_database_of_somebody_else_is_not_told_as_miopens(case_id: str) -> None:
    assert distributed_findings(DistributedRun("mydb: database is locked")) == ()


@case("g6-05-miopen-sqlite")
def test_a_job_of_ours_works_in_a_folder_of_its_own_on_the_node(case_id: str) -> None:
    script = job_script(Path("/shared/job"), Path("/shared/x.sif"), "smoke")
    assert 'mktemp -d "$local/rocm-torch-${SLURM_JOB_ID:-0}.XXXXXX"' in script
    assert "--containall" in script
    assert '--workdir "$work"' in script


@case("g6-07-rccl-plugin")
@pytest.mark.parametrize(
    "output",
    [
        "nid001:1:1 [0] NCCL INFO NET/Plugin: No plugin found (librccl-net.so)\n"
        "nid001:1:1 [0] NCCL INFO Using network Socket\n",
        "nid001:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0\n",
        "nid001:1:1 [0] NCCL INFO NET/OFI Selected Provider is tcp\n",
    ],
)
def test_a_fall_back_to_tcp_on_a_machine_with_a_fabric_fails(case_id: str, output: str) -> None:
    findings = distributed_findings(DistributedRun(output, fabric="cxi"))
    said = the_one(findings, "RCCL_TCP_FALLBACK")
    assert findings[0].severity == "error"
    assert "cxi" in said
    if "Socket" in output:
        assert "Socket" in said


@case("g6-07-rccl-plugin")
@pytest.mark.parametrize(
    ("output", "fabric"),
    [
        ("NCCL INFO Using network Socket", None),
        ("NCCL INFO NET/OFI Selected Provider is cxi", "cxi"),
        ("NCCL INFO Using network AWS Libfabric", "cxi"),
    ],
)
def test_what_the_machine_is_meant_to_use_is_well(
    case_id: str, output: str, fabric: str | None
) -> None:
    assert distributed_findings(DistributedRun(output, fabric=fabric)) == ()


@case("g6-08-mount-source-gone")
@pytest.mark.parametrize(
    "text",
    [
        "WARNING: skipping mount of /opt/rocm-6.0.3: stat /opt/rocm-6.0.3: no such file",
        "\x1b[33mWARNING:\x1b[0m skipping mount of /opt/rocm-6.0.3: no such file",
    ],
)
def test_a_bind_whose_source_is_gone_is_an_error_though_the_run_went_on(
    case_id: str, text: str
) -> None:
    findings = bind_findings(text)
    assert "/opt/rocm-6.0.3" in the_one(findings, "BIND_SOURCE_MISSING")
    assert findings[0].severity == "error"


@case("g6-08-mount-source-gone")
def test_no_bind_of_ours_has_a_version_in_its_path(case_id: str) -> None:
    script = job_script(Path("/shared/job"), Path("/shared/x.sif"), "smoke")
    assert "/opt/rocm" not in script


@case("g6-09-mr-cache-hang")
def test_a_run_that_hangs_on_a_fabric_is_told_the_variable_that_it_lacks(case_id: str) -> None:
    run = DistributedRun("", fabric="cxi", silent_seconds=300)
    said = the_one(distributed_findings(run), "DIST_HANG")
    assert "FI_MR_CACHE_MONITOR=userfaultfd" in said
    assert "300 s" in said
    set_there = replace(run, environ={"FI_MR_CACHE_MONITOR": "userfaultfd"})
    assert "FI_MR_CACHE_MONITOR=" not in the_one(distributed_findings(set_there), "DIST_HANG")


@case("g6-10-arch-missing-for-sif")
def test_two_legs_that_push_one_tag_are_refused_at_plan_time(case_id: str) -> None:
    legs = [Leg("linux/amd64", "repo:latest"), Leg("linux/arm64", "repo:latest")]
    with pytest.raises(RefusedError, match="linux/amd64, linux/arm64") as caught:
        check_legs(legs)
    assert [problem.code for problem in caught.value.problems] == ["TAG_WRITTEN_TWICE"]


@case("g6-10-arch-missing-for-sif")
def test_legs_that_push_by_digest_or_to_tags_of_their_own_are_well(case_id: str) -> None:
    digest = "repo@sha256:" + "0" * 64
    check_legs([Leg("linux/amd64", digest), Leg("linux/arm64", digest), Leg("x", "repo:x")])
