"""The text of pipelines for GitHub and GitLab, from templates beside this file.

A pipeline names no cell: which cells there are is decided when it runs, by ``rocm-torch ci plan``.
Its text changes with the settings below ``ci:`` of the matrix alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import jinja2
import yaml

from builder.oci import DEFAULT_REGISTRY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from builder.plan.ci.chunks import CiCell

GITHUB = (".github/workflows/images.yml", ".github/workflows/images-chunk.yml")
GITLAB = ".gitlab/images.yml"
# A Debian with git, Python and a shell; the jobs that build need an engine on their machine.
_GITLAB_IMAGE = "docker.io/library/python:3.13-bookworm"
_LOGIN = """\
      - name: log in to the registry
        env:
          REGISTRY_USER: ${{ secrets.REGISTRY_USER }}
          REGISTRY_TOKEN: ${{ secrets.REGISTRY_TOKEN }}
        run: |
          printf '%s' "$REGISTRY_TOKEN" |
            docker login --username "$REGISTRY_USER" --password-stdin \\
            "${ROCM_TORCH_REGISTRY:-[[ registry ]]}\""""


@dataclass(frozen=True, slots=True)
class Action:
    """An action and the commit that it is pinned to."""

    name: str
    version: str
    commit: str

    @property
    def pin(self) -> str:
        """Return what stands after ``uses:``, with the version as a comment."""
        return f"{self.name}@{self.commit} # {self.version}"


@cache
def actions() -> Mapping[str, Action]:
    """Return the pinned actions by the last part of their names."""
    text = (files("builder.plan.ci") / "actions.yaml").read_text("utf-8")
    found = [Action(one["name"], one["version"], one["commit"]) for one in yaml.safe_load(text)]
    return {action.name.rpartition("/")[2]: action for action in found}


def github(
    build_runner: Sequence[str], registry: str = DEFAULT_REGISTRY, *, signed: bool = False
) -> dict[str, str]:
    """Return the workflows by path.

    Args:
        registry: the matrix's; a variable of the repository may name another.
        build_runner: labels of machines without a GPU.
        signed: whether images of some lane are signed, which the publishing job does.
    """
    pins = actions()
    values = {
        "build_runner": build_runner[0] if len(build_runner) == 1 else json.dumps(build_runner),
        "checkout": pins["checkout"].pin,
        "upload": pins["upload-artifact"].pin,
        "download": pins["download-artifact"].pin,
        "login": _LOGIN.replace("[[ registry ]]", registry),
        "signed": signed,
    }
    return {
        path: _environment().get_template(name).render(values)
        for path, name in zip(GITHUB, ("github_images.yml.j2", "github_chunk.yml.j2"), strict=True)
    }


def gitlab(chunks: int) -> dict[str, str]:
    """Return the parent pipeline by path; each of ``chunks`` is a child pipeline of it."""
    template = _environment().get_template("gitlab.yml.j2")
    return {GITLAB: template.render(numbers=range(chunks), image=_GITLAB_IMAGE)}


def gitlab_child(
    number: int,
    cells: Sequence[CiCell],
    build_tags: Sequence[str],
    registry: str = DEFAULT_REGISTRY,
) -> str:
    """Return the child pipeline of one chunk: a job a cell and step, joined by its artifact."""
    template = _environment().get_template("gitlab_chunk.yml.j2")
    return template.render(
        number=number, cells=cells, build_tags=list(build_tags), registry=registry
    )


@cache
def _environment() -> jinja2.Environment:
    # Other signs than Jinja's own: the pipelines have ${{ }} of their own.
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("builder.plan", "ci"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 - YAML is not HTML; all values are of closed grammars
        block_start_string="[%",
        block_end_string="%]",
        variable_start_string="[[",
        variable_end_string="]]",
        comment_start_string="[#",
        comment_end_string="#]",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["json"] = json.dumps
    return environment
