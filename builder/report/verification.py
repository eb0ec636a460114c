"""What can be said of a published image: pure rules over what was read back from a registry.

They find what contradicts itself. Who is able to push a consistent lie, image and evidence alike,
is found by a signature only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from builder.engines.layers import normal_name
from builder.matrix.tags import is_dated
from builder.oci import CYCLONEDX_JSON, SPDX_JSON, TEST_REPORT, WAIVER
from builder.report.sbom import packages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from builder.engines.layers import Installed

# BuildKit, docs/attestations/attestation-storage.md.
_REFERENCE_TYPE = "vnd.docker.reference.type"
_REFERENCE_DIGEST = "vnd.docker.reference.digest"
_ATTESTATION = "attestation-manifest"
State = Literal["ok", "lie", "missing"]
NAMES = {
    SPDX_JSON: "SPDX",
    CYCLONEDX_JSON: "CycloneDX",
    TEST_REPORT: "test report",
    WAIVER: "waiver",
}
SBOMS = (SPDX_JSON, CYCLONEDX_JSON)
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: what, how it is, and one sentence.

    ``code`` is for what has a name of its own; elsewhere it follows from the state.
    """

    subject: str
    state: State
    detail: str
    code: str | None = None


def check_kinds(found: Mapping[str, int]) -> list[Check]:
    """Judge how many referrers of each kind there are: one of each SBOM, a report at least."""
    checks = []
    for kind in (*SBOMS, TEST_REPORT):
        name, number = NAMES[kind], found.get(kind, 0)
        if number == 0 and not (kind == TEST_REPORT and found.get(WAIVER)):
            checks.append(Check(name, "missing", f"the image has no {name} among its referrers"))
        elif number > 1 and kind in SBOMS:
            checks.append(Check(name, "lie", f"the image has {number} {name} documents, not one"))
    return checks


def check_children(missing: Iterable[str]) -> list[Check]:
    """Judge an index by those of its manifests that the registry does not have."""
    return [
        Check("index", "missing", f"it lists {child}, which is not there", "DANGLING_INDEX")
        for child in missing
    ]


def check_platforms(children: Iterable[Mapping[str, Any]]) -> list[Check]:
    """Judge the entries of an index: each is for a platform, or attests to one that is there.

    BuildKit keeps provenance and SBOM as entries of the platform ``unknown/unknown``, and says so
    in an annotation; without that it is an image for nothing.
    """
    entries = list(children)
    digests = {str(entry.get("digest")) for entry in entries}
    checks = []
    for entry in entries:
        platform, notes = entry.get("platform") or {}, entry.get("annotations") or {}
        unknown = "unknown" in (platform.get("os"), platform.get("architecture"))
        if notes.get(_REFERENCE_TYPE) == _ATTESTATION:
            about = str(notes.get(_REFERENCE_DIGEST))
            if about not in digests:
                what = f"{entry.get('digest')} attests to {about}, which it does not list"
                checks.append(Check("index", "lie", what, "ATTESTATION_OF_NOTHING"))
        elif unknown:
            what = f"{entry.get('digest')} is for the platform unknown/unknown and attests nothing"
            checks.append(Check("index", "lie", what, "UNKNOWN_PLATFORM_NOT_ATTESTATION"))
    return checks


def check_sbom(
    kind: str, document: Mapping[str, Any], digest: str, there: Iterable[Installed]
) -> list[Check]:
    """Judge an SBOM: it is about this digest, and lists all that the layers say is installed."""
    name = NAMES[kind]
    about = _subject(kind, document)
    if about != digest:
        return [Check(name, "lie", f"it is about {about or 'nothing'} and not about {digest}")]
    listed = {(one.name, one.version) for one in packages(document)}
    python = {(normal_name(one), version) for one, version in listed}
    left_out = sorted(
        f"{one.name} {one.version} ({one.kind})"
        for one in there
        if (one.name, one.version) not in (listed if one.kind == "dpkg" else python)
    )
    if left_out:
        some = ", ".join(left_out[:_SHOWN]) + (", ..." if len(left_out) > _SHOWN else "")
        what = f"{len(left_out)} packages of the layers are not listed: {some}"
        return [Check(name, "lie", what)]
    return [Check(name, "ok", f"about this digest; lists every package ({len(listed)})")]


def check_report(document: Mapping[str, Any], digest: str, cell: str) -> list[Check]:
    """Judge a test report: about this digest and cell, true to its own checks, and a pass."""
    image, selftest = document.get("image", {}), document.get("selftest", {})
    subject = f"test report ({selftest.get('level', '?')})"
    if image.get("digest") != digest:
        return [Check(subject, "lie", f"it is about {image.get('digest')}, not about {digest}")]
    if image.get("cell") != cell or selftest.get("cell") != cell:
        return [Check(subject, "lie", f"it is about the cell {image.get('cell')}, not {cell}")]
    counted = [check.get("status") for check in selftest.get("checks", [])]
    summary = selftest.get("summary", {})
    told = (summary.get("passed"), summary.get("failed"), summary.get("skipped"))
    failed = counted.count("fail") + counted.count("error")
    if told != (counted.count("pass"), failed, counted.count("skip")):
        return [Check(subject, "lie", f"its summary {told} is not what its checks come to")]
    verdict = summary.get("verdict")
    if verdict == "pass" and (failed or "skip" in counted or "pass" not in counted):
        return [Check(subject, "lie", "it says pass, and a check of it did not")]
    if verdict != "pass":
        return [Check(subject, "lie", f"its verdict is {verdict}, which allows no tags")]
    return [Check(subject, "ok", f"about this digest, pass, {counted.count('pass')} checks")]


def check_waiver(document: Mapping[str, Any], digest: str, cell: str) -> Check:
    """Judge a waiver: about this digest and cell; what it lets through is told."""
    image = document.get("image", {})
    about = (image.get("digest"), image.get("cell"))
    subject = f"waiver ({document.get('level', '?')})"
    if about != (digest, cell):
        return Check(subject, "lie", f"it is about {about[0]} of the cell {about[1]}")
    what = f"not tested, let through until {document.get('until')}: {document.get('reason')}"
    return Check(subject, "ok", what)


def check_signatures(against: Mapping[str, tuple[str, ...] | None]) -> list[Check]:
    """Judge signatures: for each thing that should be signed, what is wrong with those it has.

    None says that one of them is by the key; nothing at all, that there is none.
    """
    checks = []
    for name, reasons in against.items():
        if reasons:
            what = f"none of its signatures is by this key: {'; '.join(reasons)}"
            checks.append(Check(f"signature of the {name}", "lie", what, "SIGNATURE_WRONG"))
        elif reasons is not None:
            what = "it is not signed by this key or any other"
            checks.append(Check(f"signature of the {name}", "missing", what, "NOT_SIGNED"))
    if not checks:
        signed = ", ".join(against)
        checks.append(Check("signatures", "ok", f"by the given key: {signed}"))
    return checks


def check_tag(
    tag: str,
    digest: str,
    cell: str,
    *,
    all_tags: Iterable[str],
    owner: str | None,
    newest: Iterable[str] = (),
) -> list[Check]:
    """Judge a tag: the image it names was released, and is the cell that the tag belongs to.

    Args:
        tag: the tag that was asked for.
        digest: what it names.
        cell: the cell that the image says it is.
        all_tags: every tag of the repository; a release leaves a dated one with the digest in it.
        owner: the cell that owns the tag by the matrix at hand, None where that is not known.
        newest: the dated tags of the newest releases of that cell that were not withdrawn.
    """
    if owner is not None and owner != cell:
        return [Check(f"tag {tag}", "lie", f"it names {cell}; by the matrix it is {owner}'s")]
    if not any(is_dated(one, digest) for one in all_tags):
        what = f"it names {digest}, which no dated tag has: moved by hand"
        return [Check(f"tag {tag}", "lie", what)]
    latest = sorted(newest)
    if latest and not any(is_dated(one, digest) for one in latest):
        what = f"it names {digest}, and {' and '.join(latest)} was released after that"
        return [Check(f"tag {tag}", "lie", what, "ALIAS_STALE")]
    return [Check(f"tag {tag}", "ok", f"names a released image of {cell}")]


def _subject(kind: str, document: Mapping[str, Any]) -> str:
    if kind == SPDX_JSON:
        return str(document.get("name", "")).rpartition("@")[2]
    return str(document.get("metadata", {}).get("component", {}).get("version", ""))
