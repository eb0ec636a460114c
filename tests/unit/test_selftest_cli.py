from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rocm_torch_selftest

SELFTEST = Path(rocm_torch_selftest.__file__).parent.parent
NOISY_TORCH = """
import os, sys
os.write(1, b"noise of torch on file descriptor 1\\n")
print("noise of torch in Python")
__version__ = "9.9.9"
class version: hip = None; cuda = None
class cuda:
    @staticmethod
    def is_available(): return False
"""


def stand_in_torch(folder: Path, text: str) -> Path:
    """Lay a package that is called torch, for what the self-test does around the real one."""
    package = folder / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(text)
    return folder


def selftest(*arguments: str, torch: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if name != "ROCM_TORCH_CELL_FILE"
    }
    environment["PYTHONPATH"] = f"{torch}:{SELFTEST}"
    return subprocess.run(
        [sys.executable, "-m", "rocm_torch_selftest", *arguments],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def checks(document: dict[str, Any]) -> dict[str, str]:
    return {check["id"]: check["status"] for check in document["checks"]}


def test_stdout_carries_the_document_only_even_if_torch_prints(tmp_path: Path) -> None:
    torch = stand_in_torch(tmp_path, NOISY_TORCH)
    done = selftest("--only", "import", "--json", torch=torch)
    document = json.loads(done.stdout)
    assert document["schema"] == "rocm-torch/selftest/v1"
    assert document["cell"] is None
    assert document["environment"]["torch"] == "9.9.9"
    assert document["environment"]["backend"] == "cpu"
    assert checks(document) == {"import": "pass"}
    assert document["summary"]["verdict"] == "incomplete"
    assert done.returncode == 3


def test_a_torch_that_aborts_on_import_is_a_failure_and_what_needs_torch_is_skipped(
    tmp_path: Path,
) -> None:
    torch = stand_in_torch(tmp_path, "import os\nos.abort()\n")
    done = selftest("--json", torch=torch)
    document = json.loads(done.stdout)
    found = checks(document)
    assert found["import"] == "fail"
    assert found["matmul-cpu"] == found["autograd"] == found["dataloader"] == "skip"
    assert document["environment"]["torch"] is None
    assert "SIGABRT" in document["checks"][0]["detail"]
    assert done.returncode == 2


def test_a_torch_that_does_not_import_fails_the_gpu_level_too(tmp_path: Path) -> None:
    torch = stand_in_torch(tmp_path, "raise ImportError('libamdhip64.so.6: cannot open')\n")
    done = selftest("--level", "gpu", "--json", torch=torch)
    found = checks(json.loads(done.stdout))
    without_torch = {"arch", "hip-kernel"}  # they are for telling whose fault it is
    assert {found.pop(name) for name in without_torch} == {"skip"}
    assert {"devices", "matmul", "train"} < set(found)
    assert set(found.values()) == {"fail"}
    assert done.returncode == 2


def test_an_availability_check_that_aborts_leaves_the_import_passed(tmp_path: Path) -> None:
    torch = stand_in_torch(
        tmp_path,
        NOISY_TORCH.replace("return False", "os.abort()").replace("hip = None", "hip = '6'"),
    )
    document = json.loads(selftest("--only", "import", "--json", torch=torch).stdout)
    assert checks(document) == {"import": "pass"}
    assert document["environment"]["backend"] == "hip"
    assert "torch.cuda.is_available" in document["environment"]["devices_problem"]


def test_no_gpu_is_incomplete_and_exit_3_with_the_reason(tmp_path: Path) -> None:
    done = selftest("--level", "gpu", torch=stand_in_torch(tmp_path, NOISY_TORCH))
    assert done.returncode == 3
    assert "built for the CPU" in done.stdout
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("verdict: incomplete")
    assert "devices, graph, hip-kernel, idle, matmul" in last


def test_the_document_is_also_written_to_a_file(tmp_path: Path) -> None:
    torch = stand_in_torch(tmp_path, NOISY_TORCH)
    target = tmp_path / "report.json"
    done = selftest("--only", "import", "--json", "--output", str(target), torch=torch)
    assert target.read_text() == done.stdout


def test_an_output_file_that_cannot_be_written_is_exit_1(tmp_path: Path) -> None:
    torch = stand_in_torch(tmp_path, NOISY_TORCH)
    done = selftest("--only", "import", "--output", str(tmp_path / "no/x"), torch=torch)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_a_named_cell_file_that_is_missing_is_exit_1_and_names_it(tmp_path: Path) -> None:
    done = selftest(torch=tmp_path, ROCM_TORCH_CELL_FILE="/nowhere/cell.json")
    assert done.returncode == 1
    assert "/nowhere/cell.json does not exist" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [("--level", "quick"), ("--only", "matmul"), ("--level", "gpu", "--only", "import")],
)
def test_a_bad_call_is_exit_64_and_says_what_there_is(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = selftest(*arguments, torch=tmp_path)
    assert done.returncode == 64
    assert done.stdout == ""


def test_the_list_shows_each_check_and_runs_none(tmp_path: Path) -> None:
    torch = stand_in_torch(tmp_path, "import os\nos.abort()\n")
    done = selftest("--list", torch=torch)
    assert done.returncode == 0
    assert "dataloader" in done.stdout
    assert "devices" in done.stdout
    assert "dataloader" not in selftest("--list", "--level", "gpu", torch=torch).stdout


def test_the_help_has_an_example(tmp_path: Path) -> None:
    done = selftest("--help", torch=tmp_path)
    assert done.returncode == 0
    assert "--group-add" in done.stdout
