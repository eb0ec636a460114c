"""Step verify: reads a published image and its evidence back and holds them against each other."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from builder.engines.layers import installed
from builder.engines.layout.manifest import parse_manifest
from builder.errors import CouldNotError, RefusedError
from builder.matrix.tags import dated_tags
from builder.oci import (
    CONFIG,
    MANIFEST,
    TEST_REPORT,
    WAIVER,
    YANK_RECORD,
    Descriptor,
    Digest,
)
from builder.report.verification import (
    NAMES,
    Check,
    check_children,
    check_kinds,
    check_platforms,
    check_report,
    check_sbom,
    check_tag,
    check_waiver,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from builder.engines.layers import Installed
    from builder.engines.layout import Manifest
    from builder.engines.registry import Registry
    from builder.matrix.cells import Cell
    from builder.oci import Reference
    from builder.pipeline.signing import Signatures

_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CELL = "io.rocm-torch.cell"


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found; ``digest`` is None where the reference names nothing."""

    reference: str
    digest: Digest | None
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        """Tell whether everything is as it should be."""
        return all(check.state == "ok" for check in self.checks)


def verify(
    registry: Registry,
    reference: Reference,
    *,
    owners: Mapping[str, Cell] | None = None,
    signatures: Signatures | None = None,
) -> Verification:
    """Verify what ``reference`` names.

    Args:
        registry: where it lies.
        reference: with a tag or a digest.
        owners: cells by tag, where the matrix that publishes to this repository is at hand.
        signatures: checks them by one key; without it none is looked at.

    Raises:
        CouldNotError: the registry could not be asked.
    """
    repository, name = reference.repository, reference.digest or reference.tag or "latest"
    head = registry.head(repository, name)
    if head is None:
        missing = Check("image", "missing", f"{registry.host} has no {repository}:{name}")
        return Verification(str(reference), None, (missing,))
    _, raw = registry.get_manifest(repository, head.digest)
    wrong = check_children(_missing_children(registry, repository, raw))
    wrong += check_platforms(json.loads(raw).get("manifests", ()))
    if wrong:
        return Verification(str(reference), head.digest, tuple(wrong))
    try:
        manifest = parse_manifest(raw, str(reference))
    except RefusedError as error:
        told = Check("image", "lie", error.problems[0].what)
        return Verification(str(reference), head.digest, (told,))
    reader = _Reader(registry, repository, manifest)
    checks = [*reader.image(), *reader.evidence()]
    if signatures is not None and signatures.concern(reader.cell):
        checks += signatures.checks(registry, repository, reader.subjects())
    if reference.digest is None:
        tags = registry.list_tags(repository)
        owner = (owners or {}).get(name)
        newest = _newest(registry, repository, owner, tags) if owner else ()
        checks += check_tag(
            name,
            head.digest,
            reader.cell,
            all_tags=tags,
            owner=owner.id if owner else None,
            newest=newest,
        )
    return Verification(str(reference), head.digest, tuple(checks))


def _missing_children(registry: Registry, repository: str, raw: bytes) -> list[str]:
    """Return the manifests that an index lists, at any depth, and the registry does not have.

    A clean-up of "untagged" manifests takes them away although an index with a tag needs them.
    """
    missing, todo = [], [raw]
    while todo:
        for child in json.loads(todo.pop()).get("manifests", ()):
            digest = str(child.get("digest"))
            if registry.head(repository, digest) is None:
                missing.append(digest)
            else:
                todo.append(registry.get_manifest(repository, digest)[1])
    return missing


def _newest(
    registry: Registry, repository: str, cell: Cell, tags: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the dated tags of the last day on which ``cell`` was released and not withdrawn."""
    for _, released in groupby(dated_tags(cell, tags), key=itemgetter(0)):
        held = [tag for _, tag in released if not _yanked(registry, repository, tag)]
        if held:
            return tuple(held)
    return ()


def _yanked(registry: Registry, repository: str, tag: str) -> bool:
    found = registry.head(repository, tag)
    return found is None or bool(registry.referrers(repository, found.digest, YANK_RECORD))


class _Reader:
    """Reads one image and what refers to it; what cannot be read becomes a check."""

    def __init__(self, registry: Registry, repository: str, manifest: Manifest) -> None:
        self._registry = registry
        self._repository = repository
        self._manifest = manifest
        self._installed: frozenset[Installed] = frozenset()
        self.cell = ""

    def image(self) -> list[Check]:
        manifest = self._manifest
        checks = [
            Check("media types", "lie", f"{blob.media_type} is no type of an OCI image")
            for blob in manifest.blobs
            if blob.media_type != CONFIG and not blob.media_type.startswith(_LAYER)
        ]
        if manifest.media_type != MANIFEST:
            checks.append(Check("media types", "lie", f"the manifest is {manifest.media_type}"))
        try:
            config = json.loads(b"".join(self._blob(manifest.config)))
            self.cell = ((config.get("config") or {}).get("Labels") or {}).get(_CELL, "")
            layers = ((layer.media_type, self._blob(layer)) for layer in manifest.layers)
            self._installed = installed(layers)
        except (CouldNotError, RefusedError) as error:
            problem = error.problems[0]
            return [*checks, Check("layers", "missing", f"{problem.what} ({problem.where})")]
        if not self.cell:
            checks.append(Check("labels", "missing", f"the image has no label {_CELL}"))
        size = sum(blob.size for blob in manifest.blobs)
        what = f"{len(manifest.layers)} layers, {size} bytes, each with its digest"
        return [*checks, Check("image", "ok", what)]

    def evidence(self) -> list[Check]:
        kinds = Counter(str(referrer.artifact_type) for referrer in self._found)
        return [*check_kinds(kinds), *(c for one in self._judged for c in self._referrer(one))]

    def subjects(self) -> dict[str, Digest]:
        """Return what should be signed, by what it is for people."""
        named = {"image": self._manifest.digest}
        for one in self._judged:
            name = NAMES[str(one.artifact_type)]
            named[name if name not in named else f"{name} {one.digest}"] = one.digest
        return named

    @cached_property
    def _found(self) -> list[Descriptor]:
        listed = self._registry.referrers(self._repository, self._manifest.digest)
        return [referrer for referrer in listed if referrer.artifact_type in NAMES]

    @cached_property
    def _judged(self) -> list[Descriptor]:
        old = self._superseded(self._found)
        return [one for one in self._found if one.digest not in old]

    def _superseded(self, found: list[Descriptor]) -> set[Digest]:
        """Return the test reports that a later one of the same level took the place of.

        A test that was incomplete where there was no GPU is done again where there is one.
        """
        newest: dict[str, tuple[str, Digest]] = {}
        reports = []
        for referrer in found:
            if referrer.artifact_type != TEST_REPORT:
                continue
            try:
                document = self._document(referrer) or {}
                level, started = document["selftest"]["level"], document["started"]
            except (CouldNotError, RefusedError, ValueError, KeyError, IndexError, TypeError):
                continue  # judged as what it is, with all others
            reports.append((level, referrer.digest))
            newest[level] = max(
                newest.get(level, ("", referrer.digest)), (started, referrer.digest)
            )
        return {digest for level, digest in reports if newest[level][1] != digest}

    def _referrer(self, referrer: Descriptor) -> list[Check]:
        kind = str(referrer.artifact_type)
        try:
            document = self._document(referrer)
        except (CouldNotError, RefusedError) as error:
            return [Check(kind, "missing", error.problems[0].what)]
        except (ValueError, KeyError, IndexError, TypeError) as error:
            return [Check(kind, "lie", f"it is no document of ours: {error}")]
        digest = str(self._manifest.digest)
        if document is None:
            return [Check(kind, "lie", "the artifact says that it is about another image")]
        if kind == TEST_REPORT:
            return check_report(document, digest, self.cell)
        if kind == WAIVER:
            return [check_waiver(document, digest, self.cell)]
        return check_sbom(kind, document, digest, self._installed)

    def _document(self, referrer: Descriptor) -> dict[str, Any] | None:
        """Return the content of an artifact, or None where its subject is another image."""
        _, raw = self._registry.get_manifest(self._repository, referrer.digest)
        artifact = json.loads(raw)
        if artifact["subject"]["digest"] != self._manifest.digest:
            return None
        blob = Descriptor.from_json(artifact["layers"][0])
        document: dict[str, Any] = json.loads(b"".join(self._blob(blob)))
        return document

    def _blob(self, blob: Descriptor) -> Iterator[bytes]:
        return self._registry.get_blob(self._repository, blob)
