"""The generated pipelines: valid, free of known holes, and fed with every key that they read."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from samples import CELL, OURS, ROOT, cell, project

from builder.cli.main import run
from builder.errors import BadCallError, RefusedError
from builder.matrix.cells import Policy
from builder.plan.ci.chunks import CiCell, CiPlan, chunk_outputs, chunked, ci_cell
from builder.plan.ci.pipelines import GITHUB, GITLAB, actions, github, gitlab, gitlab_child

if TYPE_CHECKING:
    from collections.abc import Iterator

BIN = Path(sys.executable).parent
WORKFLOWS = github(("ubuntu-24.04",))
ON_GPU = CiCell("rocm7.2.4-torch2.10.0-py312-ubuntu24.04", "gfx942", ("self-hosted", "gfx942"))


def tool(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [str(BIN / name), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def jobs(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text)["jobs"]
    return found


def every_job() -> Iterator[tuple[str, dict[str, Any]]]:
    for text in WORKFLOWS.values():
        yield from jobs(text).items()


def test_the_committed_workflows_are_what_the_program_makes() -> None:
    assert run(["--project", str(ROOT), "ci", "github", "--check"]) == 0


def test_drift_of_a_committed_workflow_is_named_and_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path / "copy")
    words = ["--project", str(root), "ci", "github"]
    assert run([*words, "--check"]) == 2
    assert run([*words, "--write"]) == 0
    assert run([*words, "--check"]) == 0
    path = root / GITHUB[1]
    path.write_text(path.read_text("utf-8").replace("timeout-minutes: 240", "timeout-minutes: 9"))
    capsys.readouterr()
    assert run([*words, "--check", "--json"]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["code"], problem["where"]) == ("CI_DRIFT", GITHUB[1])


def test_each_workflow_has_the_shape_of_githubs_schema_and_timeouts() -> None:
    paths = [str(ROOT / path) for path in GITHUB] + [str(ROOT / ".github/workflows/ci.yml")]
    for schema in ("vendor.github-workflows", "custom.github-workflows-require-timeout"):
        result = tool("check-jsonschema", "--builtin-schema", schema, *paths)
        assert result.returncode == 0, result.stdout + result.stderr


def test_a_signed_lane_gives_the_publishing_job_its_key_and_no_other_job(tmp_path: Path) -> None:
    signed = github(("ubuntu-24.04",), signed=True)
    paths = [tmp_path / Path(name).name for name in GITHUB]
    for path, text in zip(paths, signed.values(), strict=True):
        path.write_text(text, "utf-8")
    words = ("--builtin-schema", "vendor.github-workflows", *map(str, paths))
    checked = tool("check-jsonschema", *words)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    told = tool("zizmor", "--offline", "--no-progress", *map(str, paths))
    assert told.returncode == 0, told.stdout
    for name, job in jobs(signed[GITHUB[1]]).items():
        assert ("COSIGN_PRIVATE_KEY" in json.dumps(job)) == (name == "publish")
    assert "COSIGN" not in "".join(WORKFLOWS.values())


def test_a_login_goes_to_the_registry_of_the_matrix_where_no_variable_names_another() -> None:
    fallback = "${ROCM_TORCH_REGISTRY:-ghcr.io}"
    texts = github(("ubuntu-24.04",), "ghcr.io").values()
    child = gitlab_child(0, [ON_GPU], ("docker",), "ghcr.io")
    for text in (*texts, child):
        assert text.count("docker login") == text.count(fallback) > 0


def test_zizmor_finds_nothing_in_the_workflows() -> None:
    result = tool("zizmor", "--offline", "--no-progress", str(ROOT / ".github/workflows"))
    assert result.returncode == 0, result.stdout + result.stderr


def test_zizmor_finds_what_we_would_get_wrong(tmp_path: Path) -> None:
    text = WORKFLOWS[GITHUB[1]].replace('"$CELL"', "${{ github.head_ref }}")
    (tmp_path / "workflow.yml").write_text(text, "utf-8")
    assert tool("zizmor", "--offline", str(tmp_path / "workflow.yml")).returncode != 0


def test_each_matrix_key_that_a_job_reads_is_produced_for_it() -> None:
    outputs = {name: json.loads(text)[0] for name, text in chunk_outputs([ON_GPU]).items()}
    read = 0
    for job in jobs(WORKFLOWS[GITHUB[1]]).values():
        keys = set(re.findall(r"matrix\.(\w+)", json.dumps(job)))
        if not keys:
            continue
        source = job["strategy"]["matrix"]["include"]
        name = re.fullmatch(r"\$\{\{ fromJSON\(needs\.open\.outputs\.(\w+)\) \}\}", source)
        assert name
        assert keys <= outputs[name[1]].keys()
        read += len(keys)
    assert read >= 4
    plan = jobs(WORKFLOWS[GITHUB[0]])
    assert set(re.findall(r"matrix\.(\w+)", json.dumps(plan["chunk"]))) == {"chunk"}


def test_each_output_of_a_job_is_written_by_the_program() -> None:
    opened = jobs(WORKFLOWS[GITHUB[1]])["open"]["outputs"]
    assert set(opened) == set(chunk_outputs([ON_GPU]))


def test_every_job_has_its_own_permissions_a_time_limit_and_pinned_actions() -> None:
    for text in WORKFLOWS.values():
        assert yaml.safe_load(text)["permissions"] == {}
        assert "pull_request_target" not in text
    for name, job in every_job():
        assert job["permissions"].items() <= {"contents": "read", "packages": "write"}.items(), name
        assert "timeout-minutes" in job or "uses" in job, name
        for step in job.get("steps", ()):
            if "uses" in step:
                assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"]), step
    assert all(re.fullmatch(r"[0-9a-f]{40}", action.commit) for action in actions().values())


def test_publishing_waits_for_its_turn_and_is_never_cancelled() -> None:
    publish = jobs(WORKFLOWS[GITHUB[1]])["publish"]
    assert publish["concurrency"] == {
        "group": "publish-images",
        "cancel-in-progress": False,
        "queue": "max",
    }
    assert not [job for name, job in every_job() if "concurrency" in job and name != "publish"]
    child = yaml.safe_load(gitlab_child(0, [ON_GPU], ("docker",)))
    assert child[".publish"]["resource_group"] == "publish-images"
    assert child[".publish"]["interruptible"] is False


def test_each_command_of_a_pipeline_is_one_that_the_program_has() -> None:
    from test_docs import _parse

    texts = [*WORKFLOWS.values(), *gitlab(1).values(), gitlab_child(0, [ON_GPU], ("docker",))]
    lines = [line for text in texts for line in re.findall(r"\.venv/bin/(rocm-torch .*)", text)]
    assert len(lines) >= 8
    for line in lines:
        words = line.partition(" >> ")[0].replace('"${selectors[@]}"', "").split()
        _parse(
            [
                word.strip('"')
                .replace("$CHUNK", "0")
                .replace("$SEQUENCE", "1")
                .replace("$CI_PIPELINE_IID", "1")
                for word in words
            ]
        )


def test_gitlab_gets_a_job_for_each_cell_and_step_joined_by_needs() -> None:
    cells = [ON_GPU, CiCell(CELL.id)]
    child = yaml.safe_load(gitlab_child(3, cells, ("docker",)))
    assert child[f"gpu-test:{ON_GPU.id}"]["tags"] == ["self-hosted", "gfx942"]
    assert f"gpu-test:{CELL.id}" not in child
    needs = [one["job"] for one in child[f"publish:{ON_GPU.id}"]["needs"]]
    assert needs == [f"build:{ON_GPU.id}", f"gpu-test:{ON_GPU.id}"]
    parent = yaml.safe_load(gitlab(4)[GITLAB])
    assert parent["images:chunk-3"]["trigger"]["include"][0]["artifact"] == "chunks/3.yml"


@pytest.mark.parametrize("plan_chunks", [1, 2])
def test_gitlabs_children_are_all_that_the_parent_names(tmp_path: Path, plan_chunks: int) -> None:
    root = project(tmp_path / "copy")
    text = (root / "matrix.yaml").read_text("utf-8") + "ci: {chunk: 1}\n"
    (root / "matrix.yaml").write_text(text, "utf-8")
    plan, folder = tmp_path / "plan.json", tmp_path / "chunks"
    call = ["--project", str(root), "ci"]
    selected = [] if plan_chunks == 2 else [OURS[0]]
    assert run([*call, "plan", "--plan-file", str(plan), *selected]) == 0
    words = ["gitlab", "--children", str(folder), "--plan-file", str(plan)]
    assert run([*call, *words]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["0.yml", "1.yml"]
    filled = ["extends" in path.read_text("utf-8") for path in sorted(folder.iterdir())]
    assert filled == [True, plan_chunks == 2]


def test_a_plan_goes_from_job_to_job_as_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, plan = project(tmp_path / "copy"), tmp_path / "plan.json"
    call = ["--project", str(root), "ci"]
    assert run([*call, "plan", "--plan-file", str(plan), "--outputs"]) == 0
    assert capsys.readouterr().out == "chunks=[0]\n"
    assert run([*call, "chunk", "--plan-file", str(plan), "0"]) == 0
    lines = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
    assert [row["cell"] for row in json.loads(lines["build"])] == sorted(OURS)
    assert json.loads(lines["gpu"]) == []
    assert run([*call, "chunk", "--plan-file", str(plan), "1"]) == 64
    plan.write_text("{}")
    assert run([*call, "chunk", "--plan-file", str(plan), "0"]) == 2
    assert run([*call, "chunk", "--plan-file", str(tmp_path / "none"), "0"]) == 1


def test_cells_without_a_lock_are_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path / "copy", locked=False)
    words = ["plan", "--plan-file", str(tmp_path / "plan.json"), "--json"]
    assert run(["--project", str(root), "ci", *words]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["cells"], sorted(answer["unlocked"])) == (0, sorted(OURS))


def test_a_gpu_test_runs_on_the_first_target_that_has_a_machine() -> None:
    one = replace(cell(gfx=("gfx90a", "gfx942")), policy=Policy(("smoke", "gpu")))
    runners = {"gfx942": ("self-hosted", "mi300x")}
    assert ci_cell(one, runners).gfx == "gfx942"
    assert ci_cell(one, runners).runner == ("self-hosted", "mi300x")
    assert ci_cell(one, {}).untested
    assert not ci_cell(cell(gfx=("gfx942",), policy=Policy(("smoke",))), runners).gfx


@pytest.mark.parametrize("size", [-1, 0, 257])
def test_a_chunk_that_is_no_matrix_is_refused(size: int) -> None:
    with pytest.raises(BadCallError, match="CHUNK_TOO_LARGE"):
        chunked([ON_GPU], size)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "rocm-torch/ci-plan/v1"}', "null"])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="CI_PLAN_DAMAGED"):
        CiPlan.from_text(text, "plan.json")


@pytest.mark.parametrize("label", ["a b", "$(id)", "x'", "", "é", "]"])
def test_a_label_of_a_machine_cannot_be_more_than_a_label(
    tmp_path: Path, label: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path / "copy")
    text = (root / "matrix.yaml").read_text("utf-8")
    text += f"ci: {{build_runner: [{json.dumps(label)}]}}\n"
    (root / "matrix.yaml").write_text(text, "utf-8")
    assert run(["--project", str(root), "check"]) == 2
    shutil.rmtree(root)
