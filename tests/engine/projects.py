"""Small projects for tests: a working copy of cells so tiny that torch is not the point."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from builder.engines.layout import Layout
from builder.facts import load_facts
from builder.matrix.load import read_matrix
from builder.matrix.lock import Lock

REPO = Path(__file__).parents[2]
STANDIN = Path(__file__).parent / "standin" / "selftest_main.py"
IMAGE = "rocm-torch-test/tiny"
# What is inside does not matter; a Python is needed for the hook and the stand-in self-test.
PACKAGES = ["python-is-python3"]


@dataclass(frozen=True)
class Project:
    """A working copy and the ways to call the program in it."""

    root: Path
    registry: str | None = None
    enter: tuple[str, ...] = ()  # words that start a program where the project is worked on

    @property
    def facts(self) -> Path:
        return self.root / "facts"

    def call(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the program as a user would, in a process of its own."""
        argv = [*self.enter, sys.executable, "-m", "builder", "--project", str(self.root)]
        if self.facts.is_dir():
            argv += ["--facts", str(self.facts)]
        return subprocess.run(
            [*argv, *words],
            capture_output=True,
            text=True,
            timeout=1500,
            check=False,
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(REPO), **environment},
        )

    def done(self, *words: str, **environment: str) -> dict[str, Any]:
        """Run the program, which must succeed, and return its JSON answer."""
        result = self.call(*words, "--json", **environment)
        assert result.returncode == 0, (
            f"{words}: {result.returncode}\n{result.stderr}{result.stdout}"
        )
        answer: dict[str, Any] = json.loads(result.stdout)
        return answer

    def release(self, *words: str, **environment: str) -> dict[str, Any]:
        """Release to the project's registry, which must succeed."""
        assert self.registry
        return self.done("release", "--registry", self.registry, *words, **environment)

    @property
    def tools_image(self) -> str:
        """The name of the image with Apptainer and cosign, which a call in this project used."""
        log = (self.root / ".rocm-torch/tools.jsonl").read_text("utf-8")
        words: list[str] = [w for line in log.splitlines() for w in json.loads(line)["argv"]]
        return next(word for word in reversed(words) if word.startswith("rocm-torch-tools:"))

    def forget(self, step: str) -> None:
        """Take away the record of one step, as if it had never ended."""
        for path in (self.root / ".rocm-torch/records").glob(f"*/{step}.json"):
            path.unlink()

    def verdict(self, verdict: str) -> None:
        """Let the stand-in self-test say ``verdict`` from the next build on."""
        path = self.root / "images/selftest/rocm_torch_selftest/verdict"
        path.write_text(verdict + "\n", "ascii")


def copy_repo(root: Path) -> None:
    """Copy what a working copy needs, without the state of earlier runs."""
    root.mkdir(parents=True)
    shutil.copytree(REPO / "templates", root / "templates")
    shutil.copytree(REPO / "images", root / "images", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(REPO / "tests/two_cells.yaml", root / "matrix.yaml")


def tiny_project(
    root: Path,
    bases: Path | None,
    registry: str | None,
    *,
    cells: int = 1,
    levels: tuple[str, ...] = (),
) -> Project:
    """Make a project of ``cells`` tiny cells on the Debian 13 base that lies in ``bases``.

    Args:
        root: folder to make.
        bases: working copy in which the shipped matrix was locked; None for a project without lock.
        registry: where its images go.
        cells: how many; they differ in their torch version alone.
        levels: levels of the self-test that the lane requires; smoke by default.
    """
    copy_repo(root)
    for folder in (root / "images").glob("cpu-*"):
        shutil.rmtree(folder)
    selftest = root / "images/selftest/rocm_torch_selftest"
    shutil.rmtree(selftest)
    selftest.mkdir()
    (selftest / "__init__.py").write_text("", "ascii")
    shutil.copyfile(STANDIN, selftest / "__main__.py")
    torches = [f"1.{number}.0" for number in range(cells)]
    _write_facts(root / "facts", torches)
    _write_matrix(root / "matrix.yaml", torches, levels or ("smoke",))
    project = Project(root, registry)
    project.verdict("pass")
    if bases is not None:
        _lock(project, bases)
    return project


def with_own_images(project: Project, image: str) -> Project:
    """Make digests and tags of a project its own: tests beside it share both and a registry."""
    script = project.root / "images/rootfs/usr/local/bin/rocm-torch-entrypoint"
    script.write_text(f"{script.read_text('utf-8')}# {project.root.name}\n", "utf-8")
    matrix = project.root / "matrix.yaml"
    text = matrix.read_text("utf-8")
    assert IMAGE in text
    matrix.write_text(text.replace(IMAGE, image), "utf-8")
    return project


WHEEL_INDEX = "https://download.pytorch.org/whl/rocm6.2.4"
PYPI = "https://pypi.org/simple"
WHEEL_LANE = {
    "purpose": "tests of wheels",
    "base": "wheel",
    "distro": ["debian13"],
    "rocm": ["6.2.4"],
    "torch": ["2.7.1"],
    "python": ["3.13"],
    "flavour": ["runtime"],
    "policy": {"levels": ["smoke"]},
}


def add_wheel_lane(project: Project, *, style: str = "simple") -> None:
    """Give a project a cell of the family `wheel`, and its base where the project has one.

    Its index keeps its canonical name: where that leads is for the settings of a site to say.
    """
    document = yaml.safe_load((project.root / "matrix.yaml").read_text("utf-8"))
    document["lanes"]["wheels"] = WHEEL_LANE
    text = yaml.safe_dump(document, sort_keys=False)
    (project.root / "matrix.yaml").write_text(text, "utf-8")
    wheel_facts(project, style)
    path = project.root / "matrix.lock"
    if path.exists():
        lock = Lock.from_text(path.read_text("utf-8"), "matrix.lock")
        (known, *_) = lock.cells.values()
        matrix = read_matrix(project.root / "matrix.yaml", "matrix.yaml", load_facts(project.facts))
        added = {cell.id: known for cell in matrix.cells if cell.wheels is not None}
        path.write_text(lock.with_cells(added).to_text(), "utf-8")


def wheel_facts(project: Project, style: str) -> None:
    """Say of which style the index is, and that images of wheels get no compiler."""
    path = project.facts / "wheel_indexes.yaml"
    indexes = yaml.safe_load(path.read_text("utf-8"))
    for index in indexes:
        index["style"] = style if index["url"] == WHEEL_INDEX else index["style"]
    path.write_text(yaml.safe_dump(indexes), "utf-8")
    path = project.facts / "contents.yaml"
    contents = yaml.safe_load(path.read_text("utf-8"))
    for entry in contents:
        if (entry["family"], entry["flavour"]) == ("wheel", "runtime"):
            entry["components"] = ["torchvision", "torchaudio"]
    path.write_text(yaml.safe_dump(contents), "utf-8")


def _write_facts(folder: Path, torches: list[str]) -> None:
    shutil.copytree(REPO / "builder/facts/data", folder)
    builds = [
        {
            "distro": "debian13",
            "torch": torch,
            "python": "3.13",
            "torch_version": torch,
            "packages": list(PACKAGES),
            "unpacked_bytes": 250_000_000,
            "source": "a stand-in of the tests",
            "confidence": "seen",
        }
        for torch in torches
    ]
    (folder / "distro_torch.yaml").write_text(yaml.safe_dump(builds), "utf-8")


def _write_matrix(path: Path, torches: list[str], levels: tuple[str, ...]) -> None:
    lane = {
        "purpose": "tests",
        "base": "distro",
        "default": True,
        "distro": ["debian13"],
        "torch": torches,
        "python": ["3.13"],
        "flavour": ["runtime"],
        "policy": {"levels": list(levels)},
    }
    document = {
        "version": 1,
        "image": IMAGE,
        "registry": "registry.invalid",
        "lanes": {"tiny": lane},
    }
    path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")


def _lock(project: Project, bases: Path) -> None:
    """Give each tiny cell the entry of the shipped Debian 13 cell, and bring its base here."""
    lock = Lock.from_text((bases / "matrix.lock").read_text("utf-8"), "matrix.lock")
    entry = next(locked for name, locked in lock.cells.items() if name.endswith("debian13"))
    matrix = read_matrix(project.root / "matrix.yaml", "matrix.yaml", load_facts(project.facts))
    tiny = Lock().with_cells({cell.id: entry for cell in matrix.cells})
    (project.root / "matrix.lock").write_text(tiny.to_text(), "utf-8")
    source = Layout(bases / ".rocm-torch/layout")
    Layout(project.root / ".rocm-torch/layout").adopt(source, entry.base)
