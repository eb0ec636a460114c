"""Software bills of material: one byte form for one image, whatever the run that made them."""

from __future__ import annotations

import copy
import json
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.engines.process import Command, Completed
from builder.engines.syft import Syft
from builder.errors import CouldNotError
from builder.oci import Digest
from builder.report.sbom import Package, normalise_cyclonedx, normalise_spdx, packages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from builder.engines.process import Stream

DIGEST = Digest("sha256:" + "ab" * 32)
EPOCH = datetime(2026, 11, 14, 9, 30, tzinfo=UTC)
IMAGE = "ourorg/rocm-torch:cpu-py313"
NORMALISERS = {"spdx": normalise_spdx, "cyclonedx": normalise_cyclonedx}


def spdx(path: str, run: str) -> dict[str, Any]:
    """A document as the scanner writes it for the layout at ``path``; ``run`` is the noise."""
    root = f"SPDXRef-DocumentRoot-Image-{path.replace('/', '-')}"
    apt, libc, file = f"SPDXRef-Package-deb-apt-{run}", f"SPDXRef-Package-x-{run}", "SPDXRef-File-a"
    relationships = [
        ("SPDXRef-DOCUMENT", root, "DESCRIBES"),
        (root, apt, "CONTAINS"),
        (root, libc, "CONTAINS"),
        (apt, file, "CONTAINS"),
        (libc, apt, "DEPENDENCY_OF"),
    ]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": path,
        "documentNamespace": f"https://anchore.com/syft/image{path}-{run}",
        "creationInfo": {
            "creators": ["Organization: Anchore, Inc", "Tool: syft-1.18.1"],
            "created": f"2026-12-01T00:00:{run}Z",
        },
        "packages": [
            _spdx_package("apt", apt, "3.0.4", ["cpe:a", "cpe:b"]),
            _spdx_package("libc6", libc, "2.41-12", ["cpe:c"]),
            {"name": path, "SPDXID": root, "downloadLocation": "NOASSERTION"},
        ],
        "files": [{"fileName": "a", "SPDXID": file}],
        "hasExtractedLicensingInfos": [
            {"licenseId": "LicenseRef-B", "extractedText": "B"},
            {"licenseId": "LicenseRef-A", "extractedText": "A"},
        ],
        "relationships": [
            {"spdxElementId": left, "relatedSpdxElement": right, "relationshipType": kind}
            for left, right, kind in relationships
        ],
    }


def _spdx_package(name: str, identifier: str, version: str, cpes: list[str]) -> dict[str, Any]:
    locators = [("SECURITY", "cpe23Type", cpe) for cpe in cpes]
    locators.append(("PACKAGE-MANAGER", "purl", f"pkg:deb/debian/{name}@{version}?arch=amd64"))
    return {
        "name": name,
        "SPDXID": identifier,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "externalRefs": [
            {"referenceCategory": category, "referenceType": kind, "referenceLocator": locator}
            for category, kind, locator in locators
        ],
    }


def cyclonedx(path: str, run: str) -> dict[str, Any]:
    """A document as the scanner writes it for the layout at ``path``; ``run`` is the noise."""
    apt = f"pkg:deb/debian/apt@3.0.4?arch=amd64&package-id={run}a"
    libc = f"pkg:deb/debian/libc6@2.41-12?arch=amd64&package-id={run}b"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{run}",
        "version": 1,
        "metadata": {
            "timestamp": f"2026-12-01T00:00:{run}Z",
            "tools": {"components": [{"type": "application", "name": "syft", "version": "1.18.1"}]},
            "component": {"bom-ref": f"{run}root", "type": "container", "name": path},
        },
        "components": [
            _component("apt", "3.0.4", apt),
            _component("libc6", "2.41-12", libc),
            {"bom-ref": f"os:debian@{run}", "type": "operating-system", "name": "debian"},
        ],
        "dependencies": [{"ref": apt, "dependsOn": [libc]}],
    }


def _component(name: str, version: str, ref: str) -> dict[str, Any]:
    return {
        "bom-ref": ref,
        "type": "library",
        "name": name,
        "version": version,
        "purl": ref.partition("&package-id")[0],
        "licenses": [{"license": {"id": "MIT"}}, {"license": {"id": "GPL-2.0-only"}}],
        "properties": [{"name": "syft:cpe23", "value": "b"}, {"name": "syft:cpe23", "value": "a"}],
    }


MAKERS: dict[str, Callable[[str, str], dict[str, Any]]] = {"spdx": spdx, "cyclonedx": cyclonedx}
both = pytest.mark.parametrize("kind", ["spdx", "cyclonedx"])


def normalise(kind: str, document: dict[str, Any], digest: Digest = DIGEST) -> bytes:
    return NORMALISERS[kind](document, image_name=IMAGE, image_digest=digest, created=EPOCH)


def shuffle(value: Any, chance: random.Random) -> None:
    """Put every list in ``value`` into another order."""
    members = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    for member in members:
        shuffle(member, chance)
    if isinstance(value, list):
        chance.shuffle(value)


@both
def test_two_scans_with_differing_noise_give_equal_bytes(kind: str) -> None:
    first = normalise(kind, MAKERS[kind]("/var/tmp/one/layout", "11"))
    assert first == normalise(kind, MAKERS[kind]("/home/someone/else", "59"))


@both
@given(seed=st.integers())
def test_the_order_of_the_lists_does_not_matter(kind: str, seed: int) -> None:
    document = MAKERS[kind]("/var/tmp/layout", "11")
    mixed = copy.deepcopy(document)
    shuffle(mixed, random.Random(seed))  # noqa: S311 - not for secrets
    assert normalise(kind, document) == normalise(kind, mixed)


@both
@given(folder=st.from_regex(r"/[a-z]{6,12}/[A-Za-z0-9_]{6,20}/sbom-[a-z0-9]{8}", fullmatch=True))
def test_no_local_path_survives(kind: str, folder: str) -> None:
    text = normalise(kind, MAKERS[kind](folder, "11")).decode()
    assert folder not in text
    assert folder.replace("/", "-") not in text
    assert "anchore.com" not in text


@both
def test_a_normalised_document_stays_as_it_is_and_the_input_is_not_changed(kind: str) -> None:
    document = MAKERS[kind]("/var/tmp/layout", "11")
    before = copy.deepcopy(document)
    once = normalise(kind, document)
    assert document == before
    assert normalise(kind, json.loads(once)) == once


@both
def test_another_image_gets_another_identity_and_carries_its_digest(kind: str) -> None:
    other = Digest("sha256:" + "cd" * 32)
    identity = {"spdx": "documentNamespace", "cyclonedx": "serialNumber"}[kind]
    documents = [
        json.loads(normalise(kind, MAKERS[kind]("/layout", "11"), digest))
        for digest in (DIGEST, other)
    ]
    assert documents[0][identity] != documents[1][identity]
    assert f"docker.io/{IMAGE}@{DIGEST}" in json.dumps(documents[0])
    assert f"docker.io/{IMAGE}@{other}" in json.dumps(documents[1])


@both
def test_the_packages_are_listed_without_image_and_operating_system(kind: str) -> None:
    document = MAKERS[kind]("/var/tmp/layout", "11")
    expected = (
        Package("apt", "3.0.4", "pkg:deb/debian/apt@3.0.4?arch=amd64", "deb"),
        Package("libc6", "2.41-12", "pkg:deb/debian/libc6@2.41-12?arch=amd64", "deb"),
    )
    assert packages(document) == expected
    assert packages(json.loads(normalise(kind, document))) == expected


@both
def test_a_time_without_zone_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="needs a time zone"):
        NORMALISERS[kind](
            MAKERS[kind]("/layout", "11"),
            image_name=IMAGE,
            image_digest=DIGEST,
            created=datetime(2026, 11, 14),
        )


def test_spdx_relationships_name_only_elements_of_the_document() -> None:
    document = json.loads(normalise("spdx", spdx("/layout", "11")))
    elements = {"SPDXRef-DOCUMENT", *(package["SPDXID"] for package in document["packages"])}
    ends = {
        one[end]
        for one in document["relationships"]
        for end in ("spdxElementId", "relatedSpdxElement")
    }
    kinds = sorted(one["relationshipType"] for one in document["relationships"])
    assert ends <= elements
    assert kinds == ["CONTAINS", "CONTAINS", "DEPENDENCY_OF", "DESCRIBES"]
    assert "files" not in document
    assert document["creationInfo"]["created"] == "2026-11-14T09:30:00Z"


def test_cyclonedx_dependencies_name_only_components_of_the_document() -> None:
    document = json.loads(normalise("cyclonedx", cyclonedx("/layout", "11")))
    refs = {component["bom-ref"] for component in document["components"]}
    for dependency in document["dependencies"]:
        assert {dependency["ref"], *dependency["dependsOn"]} <= refs
    assert document["metadata"]["timestamp"] == "2026-11-14T09:30:00Z"


def test_an_spdx_document_about_nothing_is_refused() -> None:
    document = spdx("/layout", "11") | {"relationships": []}
    with pytest.raises(ValueError, match="must describe one image"):
        normalise("spdx", document)


class Scanner:
    """A runner that plays syft: ends as told, and writes what it is told."""

    def __init__(self, returncode: int, written: str | None) -> None:
        self.returncode = returncode
        self.written = written

    def run(
        self,
        command: Command,
        on_line: Callable[[Stream, str], None] | None = None,  # noqa: ARG002
    ) -> Completed:
        if command.argv[1] == "version":
            return Completed(command.argv, 0, '{"version": "1.18.1"}', "", 0.1)
        for word in command.argv:
            if word.startswith("--output=") and self.written is not None:
                target = word.partition("=")[2].partition("=")[2]
                assert command.cwd is not None
                (command.cwd / target).write_text(self.written, encoding="utf-8")
        return Completed(command.argv, self.returncode, "", "", 1.0)


@pytest.mark.parametrize(
    ("returncode", "written", "code"),
    [
        (0, None, "SBOM_EMPTY"),
        (0, "", "SBOM_EMPTY"),
        (0, '{"packages": [{"name": "only the image"}], "components": []}', "SBOM_EMPTY"),
        (0, '{"packages": [', "SBOM_EMPTY"),
        (137, None, "SBOM_OUT_OF_MEMORY"),
        (-9, "", "SBOM_OUT_OF_MEMORY"),
        (1, None, "SBOM_FAILED"),
    ],
)
def test_g4_07_a_scan_that_wrote_nothing_is_an_error_that_names_the_cause(
    tmp_path: Path, returncode: int, written: str | None, code: str
) -> None:
    (tmp_path / "index.json").write_text('{"manifests": [{}]}')
    with pytest.raises(CouldNotError) as caught:
        Syft(Scanner(returncode, written), tmp_path / "syft").scan(tmp_path, scratch=tmp_path)
    problem = caught.value.problems[0]
    assert problem.code == code
    assert code == "SBOM_FAILED" or "memory" in str(problem)
    assert [path.name for path in tmp_path.iterdir()] == ["index.json"]


@pytest.mark.parametrize("index", ['{"manifests": []}', '{"manifests": [{}, {}]}'])
def test_a_layout_that_does_not_hold_one_image_is_refused(tmp_path: Path, index: str) -> None:
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(CouldNotError, match="SBOM_LAYOUT_NOT_ONE_IMAGE"):
        Syft(Scanner(0, "{}"), tmp_path / "syft").scan(tmp_path, scratch=tmp_path)


def test_a_folder_that_is_no_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CouldNotError, match="SBOM_LAYOUT_UNREADABLE"):
        Syft(Scanner(0, "{}"), tmp_path / "syft").scan(tmp_path, scratch=tmp_path)
