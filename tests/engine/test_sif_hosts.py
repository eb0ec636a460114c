"""The self-test in a SIF on hosts that let things of theirs in: real Apptainer, ordinary user."""

from __future__ import annotations

import json
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from projects import IMAGE, tiny_project

from builder.engines.registry import Registry
from builder.oci import SIF_CONFIG, Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from projects import Project

pytestmark = [pytest.mark.engine, pytest.mark.slow]
LIBRARY = "/usr/lib/x86_64-linux-gnu/libdrm_amdgpu.so.1"
# A library of a host that is newer than the image: it wants a glibc that nobody has yet. The name
# of the version is changed in its string table, and the hash of that name where it is asked for.
AGE = r"""
my ($path) = @ARGV;
open my $in, '<:raw', $path or die; local $/; my $data = <$in>; close $in;
sub hash { my $h = 0; for (unpack 'C*', shift) { $h = ($h << 4) + $_; my $g = $h & 0xf0000000;
    $h ^= $g >> 24 if $g; $h &= ~$g & 0xffffffff; } $h }
my ($old) = reverse sort grep { length == 10 } $data =~ /(GLIBC_2\.\d\d)\0/g;
my $new = 'GLIBC_2.99';
$data =~ s/\Q$old\E\0/$new\0/; my ($a, $b) = (pack('V', hash($old)), pack('V', hash($new)));
$data =~ s/\Q$a\E/$b/g;
unlink $path; open my $out, '>:raw', $path or die; print $out $data; close $out;
"""


@pytest.fixture(scope="module")
def project(run_folder: Path, bases: Path, registry_url: str) -> Iterator[Project]:
    """A released tiny cell and its SIF; the Apptainer host has a library that fits no image."""
    root = run_folder / "projects" / uuid.uuid4().hex[:12]
    project = tiny_project(root, bases, registry_url)
    tools = root / "images/tools"
    (tools / "age.pl").write_text(AGE, "ascii")
    dockerfile = tools / "Dockerfile"
    more = (
        "COPY age.pl /age.pl",
        "RUN apt-get update && apt-get install -y --no-install-recommends libdrm-amdgpu1"
        f" && perl /age.pl $(readlink -f {LIBRARY}) && ldconfig",
    )
    dockerfile.write_text("\n".join((dockerfile.read_text("utf-8"), *more, "")), "utf-8")
    project.release()
    yield project
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def sif(project: Project) -> Path:
    return Path(project.done("sif", "lane=tiny")["record"]["path"])


@pytest.fixture(scope="module")
def report(project: Project, sif: Path) -> dict[str, Any]:
    return project.done("test", "--sif", str(sif))


def codes(report: dict[str, Any], mode: str, condition: str) -> dict[str, str]:
    """Return what was found in one run, by code."""
    (run,) = (r for r in report["runs"] if (r["mode"], r["condition"]) == (mode, condition))
    return {finding["code"]: finding["summary"] for finding in run["findings"]}


def test_smoke_passes_both_ways_on_a_clean_host_and_with_the_devices_alone_on_every_host(
    report: dict[str, Any],
) -> None:
    verdicts = {(run["mode"], run["condition"]): run["verdict"] for run in report["runs"]}
    assert len(verdicts) == 12
    assert verdicts["rocm", "plain"] == verdicts["devices", "plain"] == "pass"
    assert {verdict for (mode, _), verdict in verdicts.items() if mode == "devices"} == {"pass"}
    assert report["verdict"] == "pass"


def test_a_library_that_rocm_lets_in_is_named_with_the_version_that_the_image_lacks(
    report: dict[str, Any],
) -> None:
    said = codes(report, "rocm", "plain")["APPTAINER_HOST_LIB"]
    assert "/.singularity.d/libs/libdrm_amdgpu.so.1" in said
    assert "GLIBC_2.99" in said
    assert codes(report, "devices", "plain") == {}


def test_packages_of_a_home_are_named_and_containall_keeps_them_out(
    report: dict[str, Any],
) -> None:
    said = codes(report, "rocm", "hostile-home")["USER_SITE_SHADOWS"]
    assert "/.local/lib/python3.13/site-packages/" in said
    assert codes(report, "devices", "hostile-home") == {}


def test_a_library_path_that_reaches_the_image_is_named(report: dict[str, Any]) -> None:
    assert "PYTHON_BROKEN_BY_HOST" not in codes(report, "rocm", "host-library-path")
    said = codes(report, "rocm", "forced-library-path")["PYTHON_BROKEN_BY_HOST"]
    assert "libz.so.1" in said
    assert codes(report, "devices", "forced-library-path") == {}


@pytest.mark.parametrize("condition", ["cache-read-only", "cache-full"])
@pytest.mark.parametrize("mode", ["rocm", "devices"])
def test_a_cache_place_that_takes_nothing_is_told_and_caches_are_elsewhere(
    report: dict[str, Any], mode: str, condition: str
) -> None:
    said = codes(report, mode, condition)["CACHE_NOT_WRITABLE"]
    assert "caches are in /" in said


def test_a_file_that_is_no_sif_is_told_so(project: Project) -> None:
    path = project.root / "no.sif"
    path.write_bytes(b"not a SIF")
    result = project.call("test", "--sif", str(path))
    assert result.returncode == 1
    assert "SIF_UNREADABLE" in result.stderr


def test_a_tested_sif_is_published_beside_its_image_and_pulled_with_its_digest(
    project: Project, sif: Path, report: dict[str, Any], tmp_path: Path
) -> None:
    assert project.registry
    words = ("--registry", project.registry)
    (record,) = project.done("publish-sif", *words)["records"]
    image = project.done("publish", *words)["records"][0]
    assert record["tags"] == [f"{tag}-sif" for tag in image["tags"]]
    with Registry(project.registry) as registry:
        for tag in image["tags"]:
            head = registry.head(IMAGE, tag)
            assert head is not None
            assert head.digest == image["digest"]
        (found,) = registry.referrers(IMAGE, Digest(image["digest"]), SIF_CONFIG)
        sif_head = registry.head(IMAGE, record["tags"][-1])
        assert sif_head is not None
        assert sif_head.digest == found.digest
    for name, tag in (("tag", record["tags"][-1]), ("image", image["tags"][-1])):
        target = tmp_path / f"{name}.sif"
        reference = f"{project.registry}/{IMAGE}:{tag}"
        pulled = project.done("pull-sif", reference, "--output", str(target))
        assert target.read_bytes() == sif.read_bytes()
        assert pulled["image"] == report["image"]["digest"]
    assert project.done("publish-sif", *words)["records"][0]["bytes_sent"] == 0


def test_apptainer_itself_pulls_what_was_published(
    project: Project, sif: Path, report: dict[str, Any], tmp_path: Path
) -> None:
    assert project.registry
    (record,) = project.done("publish-sif", "--registry", project.registry)["records"]
    log = (project.root / ".rocm-torch/tools.jsonl").read_text("utf-8")
    words = {word for line in log.splitlines() for word in json.loads(line)["argv"]}
    (tools,) = (word for word in words if word.startswith("rocm-torch-tools:"))
    argv = [
        *("docker", "run", "--rm", "--network=host", f"--volume={tmp_path}:/out", tools),
        *("apptainer", "pull", "--no-https", "/out/x.sif"),
        f"oras://{project.registry}/{IMAGE}:{record['tags'][-1]}",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.sif").read_bytes() == sif.read_bytes()


def test_what_was_not_tested_or_changed_since_is_not_published(
    make_project: Callable[..., Project],
) -> None:
    project = make_project()
    assert project.registry
    project.release()
    path = Path(project.done("sif", "lane=tiny")["record"]["path"])
    words = ("publish-sif", "--registry", project.registry)
    result = project.call(*words)
    assert result.returncode == 3
    assert "SIF_NOT_TESTED" in result.stderr
    project.done("test", "--host", "plain", "--sif", str(path))
    result = project.call(*words)
    assert result.returncode == 3
    assert "hostile-home" in result.stderr
    with path.open("ab") as stream:
        stream.write(b"more")
    result = project.call(*words)
    assert result.returncode == 2
    assert "SIF_CHANGED" in result.stderr
