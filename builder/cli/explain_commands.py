"""Commands that tell why: explain, facts."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from builder.cli.common import Json, answer, open_session
from builder.errors import BadCallError, Problem, RefusedError

if TYPE_CHECKING:
    from builder.facts import Fact

_DAYS = re.compile(r"([0-9]{1,5})d")


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(epilog="Example: rocm-torch explain 6.2-py311")(explain)
    app.command(epilog="Example: rocm-torch facts upstream_images --older-than 60d")(facts)


def explain(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A tag, a dated tag or a cell id.")],
    as_json: Json = False,
) -> None:
    """Tell the story of a tag: what it points to and why, or why there is none.

    Exit 2 where the matrix has no such cell; what is nearest is told.
    """
    from builder.matrix.explain import explain as story_of

    session = open_session(context)
    found = story_of(name, session.matrix, session.facts, datetime.now(UTC).date())
    if found is None:
        raise BadCallError(
            Problem(
                "NOT_A_TAG",
                f'"{name}" cannot be read as a tag or cell id of this project.',
                fix="Write a tag such as 6.2-py311, 10.1-py312-ubuntu24.04, cpu or latest.",
            )
        )
    document = {
        "schema": "rocm-torch/explain/v1",
        "asked": found.asked,
        "cell": found.cell,
        "story": list(found.story),
        "code": found.code,
        "nearest": list(found.nearest),
    }
    if found.cell is None and not as_json:
        near = f"nearest: {', '.join(found.nearest)}" if found.nearest else None
        raise RefusedError(
            Problem(found.code or "UNKNOWN", " ".join(found.story), where=name, fix=near)
        )
    answer(document, as_json=as_json, text=lambda: typer.echo("\n".join(found.story)))
    if found.cell is None:
        raise typer.Exit(2)


def facts(
    context: typer.Context,
    subject: Annotated[
        str | None, typer.Argument(help="A subject; all of them, with their sizes, by default.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(help="Only what was read longer ago: 60d. What has no date is old."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what the tool holds to be true, each entry with its source and confidence."""
    from builder.facts import SUBJECTS

    if subject is not None and subject not in SUBJECTS:
        raise BadCallError(
            Problem(
                "UNKNOWN_SUBJECT",
                f'There is no subject "{subject}".',
                fix=f"The subjects are: {', '.join(SUBJECTS)}.",
            )
        )
    limit = _limit(older_than, datetime.now(UTC).date())
    found = {
        name: [entry for entry in entries if limit is None or _older(entry, limit)]
        for name, entries in open_session(context).facts.subjects.items()
        if subject in (None, name)
    }
    document = {
        "schema": "rocm-torch/facts/v1",
        "subjects": {name: [_entry(one) for one in entries] for name, entries in found.items()},
    }

    def text() -> None:
        for name, entries in found.items():
            if subject is None and limit is None:
                typer.echo(f"{name}  {len(entries)} entries")
                continue
            for entry in entries:
                values = " ".join(f"{key}={_short(value)}" for key, value in _own(entry).items())
                typer.echo(f"{values}\n  {entry.confidence}, read {entry.read}: {entry.source}")

    answer(document, as_json=as_json, text=text)


def _limit(text: str | None, today: date) -> date | None:
    if text is None:
        return None
    days = _DAYS.fullmatch(text)
    if not days:
        raise BadCallError(
            Problem("BAD_AGE", f'"{text}" is not an age.', fix="Write days, such as 60d.")
        )
    return today - timedelta(days=int(days[1]))


def _older(entry: Fact, limit: date) -> bool:
    return entry.read is None or entry.read < limit


def _own(entry: Fact) -> dict[str, Any]:
    """Return the fields of an entry other than where it comes from."""
    names = [field.name for field in fields(entry)]
    values = {name: getattr(entry, name) for name in names}
    own = {
        key: value for key, value in values.items() if key not in {"source", "confidence", "read"}
    }
    return {key: value for key, value in own.items() if value not in (None, ())}


def _entry(entry: Fact) -> dict[str, Any]:
    from pydantic import TypeAdapter

    document: dict[str, Any] = TypeAdapter(type(entry)).dump_python(entry, mode="json")
    return document


def _short(value: object) -> str:
    return ",".join(str(part) for part in value) if isinstance(value, tuple) else str(value)
