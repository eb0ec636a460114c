"""A test report as JUnit XML, which CI systems show check by check."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Mapping

# What XML 1.0 cannot carry: programs print such characters, and a parser refuses the whole file.
_NOT_IN_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAGS = {"fail": "failure", "error": "error", "skip": "skipped", "not_applicable": "skipped"}


def junit(report: Mapping[str, Any]) -> bytes:
    """Return the JUnit form of a ``rocm-torch/test-report/v1``.

    One suite a level and image, one case a check. A required check that was not tried is a
    failure of its suite, as it is in the verdict; what does not apply is skipped.
    """
    document = report["selftest"]
    image, checks = report["image"], document["checks"]
    missing = set(document["summary"].get("missing", ()))
    name = f"{image['cell']} {document['level']}"
    suite = ET.Element("testsuite", name=name, timestamp=str(report["started"]))
    for check in checks:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=f"{image['cell']}.{document['level']}",
            name=check["id"],
            time=f"{check['seconds']:.3f}",
        )
        tag = "failure" if check["id"] in missing else _TAGS.get(check["status"])
        if tag is not None:
            ET.SubElement(case, tag, message=_clean(check["detail"]), type=check["status"])
    properties = ET.Element("properties")
    for key, value in (("digest", image["digest"]), ("verdict", document["summary"]["verdict"])):
        ET.SubElement(properties, "property", name=key, value=str(value))
    suite.insert(0, properties)
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(checks)))
    suite.set("time", f"{sum(check['seconds'] for check in checks):.3f}")
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("?", text)
