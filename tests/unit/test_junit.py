from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from builder.report.junit import junit

STATUSES = ("pass", "fail", "error", "skip", "not_applicable")


def report(*checks: tuple[str, str, str], missing: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "image": {"cell": "cpu-torch2.6.0-py313-debian13", "digest": "sha256:0"},
        "started": "2026-12-01T00:00:00+00:00",
        "selftest": {
            "level": "gpu",
            "summary": {"verdict": "fail", "missing": list(missing)},
            "checks": [
                {"id": name, "status": status, "seconds": 1.5, "detail": detail, "data": {}}
                for name, status, detail in checks
            ],
        },
    }


def suite(document: dict[str, Any]) -> ET.Element:
    root = ET.fromstring(junit(document))  # noqa: S314 - our own text
    found = root.find("testsuite")
    assert found is not None
    return found


def test_each_check_is_a_case_and_the_counts_are_those_of_the_cases() -> None:
    found = suite(report(*((status, status, "so") for status in STATUSES)))
    assert [case.get("name") for case in found.findall("testcase")] == list(STATUSES)
    counts = {name: found.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "5", "failures": "1", "errors": "1", "skipped": "2"}


def test_a_required_check_that_was_not_tried_is_a_failure() -> None:
    found = suite(report(("devices", "skip", "no GPU"), missing=("devices",)))
    assert found.get("failures") == "1"
    assert found.get("skipped") == "0"


@given(st.text(), st.sampled_from(STATUSES))
def test_whatever_a_check_says_the_file_can_be_read(detail: str, status: str) -> None:
    assert suite(report(("x", status, detail))).get("tests") == "1"
