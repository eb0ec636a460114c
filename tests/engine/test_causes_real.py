"""Real builds that fail on Debian 13, and the cause that is told of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from projects import Project

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        pytest.param("apt-key list", "APT_KEY_REMOVED", "signed-by", id="g2-08-apt-key"),
        pytest.param(
            "apt-get install -y rocm-no-such-package",
            "PACKAGE_NOT_FOUND",
            "correct the name",
            id="package",
        ),
    ],
)
def test_a_build_that_fails_names_its_cause_first(
    make_project: Callable[..., Project], line: str, code: str, says: str
) -> None:
    project = make_project()
    template = project.root / "templates/distro.Dockerfile.j2"
    text = template.read_text("utf-8")
    start = "{{ image.start(cell) }}\n"
    assert start in text
    template.write_text(text.replace(start, f"{start}RUN {line}\n"))
    assert project.call("render").returncode == 0
    result = project.call("build", "--json")
    problems = json.loads(result.stdout)["problems"]
    assert result.returncode == 1
    assert [problem["code"] for problem in problems] == [code, "BUILD_FAILED"]
    assert says in str(problems[0])
    assert line.split()[0] in problems[1]["what"]
