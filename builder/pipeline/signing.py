"""Signing what is published, and checking signatures: bundles of cosign among the referrers.

The image and each document about it are signed one by one: who can push to the registry could
otherwise put another test report beside a signed image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.engines.layout.manifest import parse_manifest
from builder.engines.registry import Attachment
from builder.errors import BadCallError, Problem, RefusedError
from builder.oci import SIGSTORE_BUNDLE, Descriptor, Digest
from builder.pipeline.tool_places import cosign
from builder.report.verification import Check, check_signatures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from builder.engines.cosign import Cosign
    from builder.engines.registry import Registry
    from builder.matrix.cells import Cell
    from builder.pipeline.session import Session

_MOST_BYTES = 1 << 20
_PEM = b"-----BEGIN PUBLIC KEY-----"
# What cosign 3 notes at its own bundles, without the time of the run.
_NOTES = {
    "dev.sigstore.bundle.content": "dsse-envelope",
    "dev.sigstore.bundle.predicateType": "https://sigstore.dev/cosign/sign/v1",
}


@dataclass(frozen=True, slots=True)
class Signatures:
    """Looks for signatures by one public key in a registry.

    Attributes:
        cosign: checks them.
        public: the key, as PEM.
        cells: the cells whose images are to be signed; all images where it is None.
    """

    cosign: Cosign
    public: bytes
    cells: frozenset[str] | None = None

    def concern(self, cell: str) -> bool:
        """Tell whether images of a cell are to be signed."""
        return self.cells is None or cell in self.cells

    def against(
        self, registry: Registry, repository: str, digest: Digest
    ) -> tuple[str, ...] | None:
        """Return what is wrong with each signature of a manifest; None where one is by the key.

        Raises:
            CouldNotError: the registry or cosign did not answer.
        """
        _, manifest = registry.get_manifest(repository, digest)
        reasons: list[str] = []
        for bundle in _bundles(registry, repository, digest):
            reason = self.cosign.verify(digest, manifest, bundle, self.public)
            if reason is None:
                return None
            reasons.append(reason)
        return tuple(dict.fromkeys(reasons))

    def checks(
        self, registry: Registry, repository: str, subjects: Mapping[str, Digest]
    ) -> list[Check]:
        """Judge the signatures of manifests, by what they are for people; errors as above."""
        found = {
            name: self.against(registry, repository, digest) for name, digest in subjects.items()
        }
        return check_signatures(found)


def read_public_key(path: Path) -> bytes:
    """Read a public key.

    Raises:
        RefusedError: ``PUBLIC_KEY_UNUSABLE``, where there is no PEM file of a public key.
    """
    try:
        content = path.read_bytes()
        what = "it is no public key in PEM form"
    except OSError as error:
        content, what = b"", f"it cannot be read: {error.strerror}"
    if not content.lstrip().startswith(_PEM):
        raise RefusedError(
            Problem(
                code="PUBLIC_KEY_UNUSABLE",
                what=what,
                where=str(path),
                fix="write the public half: cosign public-key --key cosign.key > cosign.pub",
            )
        )
    return content


def public_key(session: Session) -> bytes | None:
    """Return the public key that the matrix names; None where it names none."""
    signing = session.matrix.source.signing
    return (
        None
        if signing is None
        else read_public_key(session.matrix_file.parent / signing.public_key)
    )


def signed_with(session: Session, cell: Cell) -> str | None:
    """Return the digest of the key that a cell's images are signed with; None for no signing."""
    public = public_key(session) if cell.policy.signed else None
    return None if public is None else Digest.of(public)


def require_key(session: Session, cells: Iterable[Cell]) -> None:
    """Raise where images are to be signed and no private key was named.

    Raises:
        BadCallError: ``SIGNING_KEY_MISSING``.
    """
    signed = [cell.id for cell in cells if cell.policy.signed]
    if signed and session.signing_key is None:
        raise BadCallError(
            Problem(
                code="SIGNING_KEY_MISSING",
                what="images of its lane are signed, and no private key is named",
                where=signed[0],
                fix="write --signing-key KEY before the command, or set ROCM_TORCH_SIGNING_KEY:"
                " a file of cosign, env://NAME, or the address of a key service",
            )
        )


def sign(
    session: Session,
    cell: Cell,
    registry: Registry,
    repository: str,
    subjects: Iterable[Descriptor],
) -> None:
    """Sign manifests that the registry has, where the cell is to be signed and they are not yet.

    Each signature is checked with the public key of the matrix before it is attached.

    Raises:
        BadCallError: ``SIGNING_KEY_MISSING``, ``SIGNING_KEY_ELSEWHERE``.
        RefusedError: ``SIGNING_KEY_OTHER``, ``PUBLIC_KEY_UNUSABLE``.
        CouldNotError: cosign or the registry did not do its part.
    """
    public = public_key(session) if cell.policy.signed else None
    if public is None:
        return
    require_key(session, (cell,))
    key = session.signing_key
    signatures = Signatures(cosign(session), public)
    for subject in subjects:
        session.tools.go_on()
        if key is None or signatures.against(registry, repository, subject.digest) is None:
            continue
        _, manifest = registry.get_manifest(repository, subject.digest)
        bundle = signatures.cosign.sign(subject.digest, manifest, key)
        reason = signatures.cosign.verify(subject.digest, manifest, bundle, public)
        if reason is not None:
            raise RefusedError(
                Problem(
                    code="SIGNING_KEY_OTHER",
                    what="the private key is not the one whose public half the matrix names",
                    where=key.reference,
                    why=reason,
                    fix="name the right key, or write the new public key to the matrix's file",
                )
            )
        attachment = Attachment(SIGSTORE_BUNDLE, bundle, SIGSTORE_BUNDLE, _NOTES)
        registry.attach_all(repository, subject, (attachment,))


def require_signature(
    session: Session, registry: Registry, repository: str, digest: Digest, public: bytes
) -> None:
    """Raise unless a manifest is signed by a key.

    Raises:
        RefusedError: ``NOT_SIGNED`` or ``SIGNATURE_WRONG``.
        CouldNotError: the registry or cosign did not answer.
    """
    against = Signatures(cosign(session), public).against(registry, repository, digest)
    if against is None:
        return
    raise RefusedError(
        Problem(
            code="SIGNATURE_WRONG" if against else "NOT_SIGNED",
            what="no signature of it is by that key" if against else "nobody signed it",
            where=f"{registry.host}/{repository}@{digest}",
            why="; ".join(against) or None,
            fix="ask who published it which key is theirs, and use nothing of it before",
        )
    )


def _bundles(registry: Registry, repository: str, digest: Digest) -> Iterator[bytes]:
    """Return the bundles attached to a manifest; an artifact that is none of ours is left out."""
    for referrer in registry.referrers(repository, digest, SIGSTORE_BUNDLE):
        _, body = registry.get_manifest(repository, referrer.digest)
        try:
            layers = parse_manifest(body, str(referrer.digest)).layers
        except RefusedError:
            continue
        for layer in layers:
            if layer.media_type == SIGSTORE_BUNDLE and layer.size <= _MOST_BYTES:
                yield b"".join(registry.get_blob(repository, layer))
