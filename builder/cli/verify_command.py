"""Command verify: whether a published image is what its evidence says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from builder.cli.common import Json, PublicKey, Registry, answer, open_session, registry_for
from builder.errors import BadCallError, Problem, RefusedError
from builder.oci import Reference

if TYPE_CHECKING:
    from pathlib import Path

    from builder.pipeline.session import Session
    from builder.pipeline.signing import Signatures


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: rocm-torch verify localhost:5000/ourorg/rocm-torch:cpu-py313")(
        verify
    )


def verify(
    context: typer.Context,
    ref: Annotated[str, typer.Argument(help="HOST/REPOSITORY:TAG or @DIGEST, or a tag.")],
    registry: Registry = None,
    key: PublicKey = None,
    as_json: Json = False,
) -> None:
    """Read an image, its SBOMs and its test report back, and find what is not true.

    Signatures are checked by the key that is given, else by the matrix's where its lanes are
    signed.
    """
    from builder.pipeline.verify import verify as step

    session = open_session(context)
    reference = _reference(session, ref, registry)
    ours = "/" not in ref or reference.repository == session.matrix.image
    found = step(
        registry_for(session, reference.registry),
        reference,
        owners=session.matrix.tags if ours else None,
        signatures=_signatures(session, key, ours=ours),
    )
    document = {
        "schema": "rocm-torch/verify/v1",
        "reference": found.reference,
        "digest": found.digest,
        "holds": found.holds,
        "checks": [
            {"subject": one.subject, "state": one.state, "detail": one.detail}
            for one in found.checks
        ],
    }
    lines = [found.reference, str(found.digest or "-")]
    lines += [f"{one.state:<8} {one.subject}: {one.detail}" for one in found.checks]
    error = None
    if not found.holds:
        error = RefusedError(
            Problem(one.code or f"VERIFY_{one.state.upper()}", one.detail, where=one.subject)
            for one in found.checks
            if one.state != "ok"
        )
    answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(lines)), error=error)


def _signatures(session: Session, key: Path | None, *, ours: bool) -> Signatures | None:
    from builder.pipeline.signing import Signatures, public_key, read_public_key
    from builder.pipeline.tool_places import cosign

    if key is not None:
        return Signatures(cosign(session), read_public_key(key))
    public = public_key(session) if ours else None
    if public is None:
        return None
    signed = frozenset(cell.id for cell in session.matrix.cells if cell.policy.signed)
    return Signatures(cosign(session), public, signed)


def _reference(session: Session, text: str, registry: str | None) -> Reference:
    host = registry or session.matrix.registry
    whole = text if "/" in text else f"{host}/{session.matrix.image}:{text}"
    try:
        return Reference.parse(whole)
    except ValueError as error:
        raise BadCallError(
            Problem(
                code="BAD_REFERENCE",
                what=f"{text!r} is no image reference",
                fix="write HOST/REPOSITORY:TAG, HOST/REPOSITORY@sha256:..., or a tag of the matrix",
            )
        ) from error
