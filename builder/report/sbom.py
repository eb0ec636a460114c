"""Software bills of material as values: deterministic, and about the image alone.

The scanner writes the local path, the clock and a random identifier into its documents. Two scans
of one image must be byte-equal to be compared, attached once and found again, so all of that is
replaced by what the image digest and the lock's epoch say.

Sources: SPDX 2.3 (document creation information, relationships), CycloneDX 1.6 JSON, package-url
type ``oci``.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from builder.oci import Digest, Reference, canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://spdx.org/spdxdocs/rocm-torch")
_TOOL = "rocm-torch"
_DOCUMENT = "SPDXRef-DOCUMENT"
_ROOT = "SPDXRef-Image"
_NO_FILES = (
    "Entries for single files are left out: the image digest already fixes every byte, they name no"
    " component, and they make the document twenty times larger. The packages carry the evidence."
)
_FROM_FILES = ("files", "hasFiles", "snippets", "packageVerificationCode", "licenseInfoFromFiles")


@dataclass(frozen=True, slots=True)
class Package:
    """One component of an image; ``purl`` and ``type`` are empty where the scanner knew none."""

    name: str
    version: str
    purl: str
    type: str


def normalise_spdx(
    document: Mapping[str, Any], *, image_name: str, image_digest: Digest, created: datetime
) -> bytes:
    """Return the one byte form of an SPDX 2.3 document about this image.

    Packages, their relationships and the licence texts stay; entries for single files go (the
    document says why). Identifiers of packages are derived from their content.

    Args:
        document: what the scanner wrote, as JSON values; it is not changed.
        image_name: repository with or without a tag; a digest in it is ignored.
        image_digest: digest of the image manifest.
        created: the epoch of the cell; naive times are refused.

    Raises:
        ValueError: ``created`` has no time zone, or ``document`` describes no root element.
        KeyError: a required SPDX member is missing.
    """
    name = _image(image_name, image_digest)
    creation = dict(document["creationInfo"])
    creators = sorted({*creation["creators"], f"Tool: {_TOOL}"})
    creation |= {"created": _stamp(created), "creators": creators, "comment": _NO_FILES}
    root = _spdx_root(document)
    packages, ids = _by_content(
        (
            _without(package, _FROM_FILES)
            for package in document["packages"]
            if package["SPDXID"] != root
        ),
        key="SPDXID",
        identify=_spdx_id,
    )
    ids |= {root: _ROOT, _DOCUMENT: _DOCUMENT}
    result = {key: value for key, value in document.items() if key not in _FROM_FILES}
    result |= {
        "SPDXID": _DOCUMENT,
        "name": str(name),
        "documentNamespace": _spdx_namespace(name, creators),
        "creationInfo": creation,
        "packages": [_spdx_image(name), *packages],
        "relationships": _spdx_relationships(document.get("relationships", ()), ids),
    }
    if licences := _unique(document.get("hasExtractedLicensingInfos", ())):
        result["hasExtractedLicensingInfos"] = licences
    return canonical_json(_sorted_lists(result))


def normalise_cyclonedx(
    document: Mapping[str, Any], *, image_name: str, image_digest: Digest, created: datetime
) -> bytes:
    """Return the one byte form of a CycloneDX 1.6 document about this image.

    Arguments and errors as for :func:`normalise_spdx`.
    """
    name = _image(image_name, image_digest)
    metadata = dict(document["metadata"])
    root = metadata.get("component", {}).get("bom-ref", "")
    metadata |= {"timestamp": _stamp(created), "component": _cyclonedx_image(name)}
    metadata["tools"] = {"components": _cyclonedx_tools(metadata.get("tools"))}
    components, refs = _by_content(document.get("components", ()), key="bom-ref", identify=_bom_ref)
    refs[root] = str(_purl(name))
    result = dict(document) | {
        "serialNumber": f"urn:uuid:{_identity(name, 'cyclonedx', metadata['tools'])}",
        "version": 1,
        "metadata": metadata,
        "components": components,
        "dependencies": _cyclonedx_dependencies(document.get("dependencies", ()), refs),
    }
    return canonical_json(_sorted_lists(result))


def packages(document: Mapping[str, Any]) -> tuple[Package, ...]:
    """List the packages of an SPDX or CycloneDX document by name; the image itself is none."""
    if "spdxVersion" in document:
        root = _spdx_root(document)
        found = [
            (package["name"], package.get("versionInfo", ""), _spdx_purl(package))
            for package in document["packages"]
            if package["SPDXID"] != root
        ]
    else:
        found = [
            (component["name"], component.get("version", ""), component.get("purl", ""))
            for component in document.get("components", ())
            if component["type"] != "operating-system"
        ]
    listed = {Package(name, version, purl, _purl_type(purl)) for name, version, purl in found}
    return tuple(sorted(listed, key=lambda one: (one.name, one.version, one.purl)))


def _image(image_name: str, image_digest: Digest) -> Reference:
    named = Reference.parse(image_name)
    return Reference(named.registry, named.repository, named.tag, image_digest)


def _stamp(created: datetime) -> str:
    if created.tzinfo is None:
        raise ValueError(f"the time of a document needs a time zone: {created!r}")
    return created.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _identity(name: Reference, kind: str, tools: object) -> uuid.UUID:
    # The tools belong in: another scanner version makes another document about the same image,
    # and SPDX wants another namespace then.
    return uuid.uuid5(_NAMESPACE, f"{name} {kind} {canonical_json(tools).decode()}")


def _purl(name: Reference) -> str:
    last = name.repository.rpartition("/")[2]
    where = quote(name.name, safe="/")
    tag = f"&tag={quote(name.tag)}" if name.tag else ""
    return f"pkg:oci/{last}@{quote(str(name.digest), safe='')}?repository_url={where}{tag}"


def _purl_type(purl: str) -> str:
    match = re.match(r"pkg:([A-Za-z][A-Za-z0-9.+-]*)/", purl)
    return match[1].lower() if match else ""


def _without(value: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: member for key, member in value.items() if key not in keys}


def _sorted_lists(value: Any) -> Any:
    """Order every list: in both formats all lists that a scanner writes are sets."""
    if isinstance(value, dict):
        return {key: _sorted_lists(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return sorted((_sorted_lists(member) for member in value), key=canonical_json)
    return value


def _unique(values: Iterable[Any]) -> list[Any]:
    ordered = {canonical_json(_sorted_lists(value)): value for value in values}
    return [ordered[key] for key in sorted(ordered)]


def _by_content(
    elements: Iterable[Mapping[str, Any]],
    *,
    key: str,
    identify: Callable[[Mapping[str, Any], str], str],
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Give each element an identifier made from its content; also return old to new identifiers.

    Elements that differ by their identifier alone are one element.
    """
    new: dict[str, dict[str, Any]] = {}
    ids: dict[str, str] = {}
    for element in elements:
        content = _sorted_lists(_without(element, (key,)))
        identifier = identify(element, Digest.of(canonical_json(content)).hex[:16])
        new[identifier] = {**content, key: identifier}
        ids[str(element.get(key, ""))] = identifier
    return [new[identifier] for identifier in sorted(new)], ids


# SPDX ---------------------------------------------------------------------------------------------


def _spdx_root(document: Mapping[str, Any]) -> str:
    described = [str(one) for one in document.get("documentDescribes", ())] + [
        str(one["relatedSpdxElement"])
        for one in document.get("relationships", ())
        if one["relationshipType"] == "DESCRIBES" and one["spdxElementId"] == _DOCUMENT
    ]
    if len(set(described)) != 1:
        raise ValueError(f"the document must describe one image, not {sorted(set(described))}")
    return described[0]


def _spdx_namespace(name: Reference, creators: list[str]) -> str:
    last = name.repository.rpartition("/")[2]
    return f"https://spdx.org/spdxdocs/{last}-{_identity(name, 'spdx', creators)}"


def _spdx_id(package: Mapping[str, Any], content: str) -> str:
    kind = _purl_type(_spdx_purl(package)) or "other"
    words = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{kind}-{package['name']}")
    return f"SPDXRef-Package-{words}-{content}"


def _spdx_purl(package: Mapping[str, Any]) -> str:
    purls = [
        str(one["referenceLocator"])
        for one in package.get("externalRefs", ())
        if one["referenceType"] == "purl"
    ]
    return min(purls, default="")


def _spdx_image(name: Reference) -> dict[str, Any]:
    digest = name.digest or ""
    return {
        "SPDXID": _ROOT,
        "name": str(name),
        "versionInfo": str(digest),
        "supplier": "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "CONTAINER",
        "checksums": [
            {"algorithm": "SHA256", "checksumValue": str(digest).removeprefix("sha256:")}
        ],
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": _purl(name),
            }
        ],
    }


def _spdx_relationships(
    relationships: Iterable[Mapping[str, Any]], ids: Mapping[str, str]
) -> list[Any]:
    """Keep relationships between elements that are still there, under their new identifiers."""
    return _unique(
        dict(one)
        | {
            "spdxElementId": ids[one["spdxElementId"]],
            "relatedSpdxElement": ids[one["relatedSpdxElement"]],
        }
        for one in relationships
        if one["spdxElementId"] in ids and one["relatedSpdxElement"] in ids
    )


# CycloneDX ----------------------------------------------------------------------------------------


def _cyclonedx_tools(tools: Mapping[str, Any] | None) -> list[Any]:
    scanners = list((tools or {}).get("components", ()))
    return _unique([*scanners, {"type": "application", "name": _TOOL}])


def _cyclonedx_image(name: Reference) -> dict[str, Any]:
    digest = str(name.digest or "")
    return {
        "bom-ref": _purl(name),
        "type": "container",
        "name": str(name),
        "version": digest,
        "purl": _purl(name),
        "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
    }


def _bom_ref(component: Mapping[str, Any], content: str) -> str:
    purl = component.get("purl")
    if not purl:
        return f"{component['type']}:{component['name']}@{component.get('version', '')}#{content}"
    return f"{purl}{'&' if '?' in unquote(str(purl)) else '?'}package-id={content}"


def _cyclonedx_dependencies(
    dependencies: Iterable[Mapping[str, Any]], refs: Mapping[str, str]
) -> list[Any]:
    merged: dict[str, set[str]] = {}
    for one in dependencies:
        if one["ref"] in refs:
            needed = {refs[ref] for ref in one.get("dependsOn", ()) if ref in refs}
            merged.setdefault(refs[one["ref"]], set()).update(needed)
    return [{"ref": ref, "dependsOn": sorted(needed)} for ref, needed in sorted(merged.items())]
