from __future__ import annotations

import json
from pathlib import Path

from builder.engines.buildx_progress import Doing, ProgressLog

CASES = Path(__file__).parents[1] / "cases" / "buildx"


def vertex(digest: str, name: str, **changes: str) -> str:
    return json.dumps({"vertexes": [{"digest": digest, "name": name, "started": "x", **changes}]})


def moved(digest: str, part: str, current: int, total: int) -> str:
    entry = {"vertex": digest, "id": part, "current": current, "total": total}
    return json.dumps({"statuses": [entry]})


def test_a_build_does_what_began_last_and_has_not_ended_with_the_bytes_of_its_parts() -> None:
    log = ProgressLog()
    log.feed(vertex("a", "RUN apt-get"))
    log.feed(vertex("b", "FROM debian"))
    log.feed(moved("b", "layer1", 10, 100))
    log.feed(moved("b", "layer2", 5, 50))
    log.feed(moved("b", "layer1", 60, 100))
    found = [log.doing]
    for digest, name in (("b", "FROM debian"), ("a", "RUN apt-get")):
        log.feed(vertex(digest, name, completed="y"))
        found.append(log.doing)
    assert found == [Doing("FROM debian", 65, 150), Doing("RUN apt-get"), None]


def test_a_recorded_build_says_that_it_exports() -> None:
    log, names = ProgressLog(), list[str]()
    for line in (CASES / "built.rawjson").read_text("utf-8").splitlines():
        log.feed(line)
        if log.doing and log.doing.name not in names:
            names.append(log.doing.name)
    assert any(name.startswith("exporting") for name in names)
