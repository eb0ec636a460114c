"""All rules over one output: what failed first is the cause, what came of it follows."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from builder.plan.causes.table import RULES

if TYPE_CHECKING:
    from builder.plan.causes.model import Cause, Output

# BuildKit's log: "#9 0.9 text" is of step 9, "#9 ERROR: ..." says that step 9 failed.
_STEP = re.compile(r"#(\d+) ")
_MOST = 1 << 17  # characters that are read, of the end: more takes seconds and says no more
_FAILED_STEP = re.compile(r"^#(\d+) ERROR", re.MULTILINE)


def causes(output: Output) -> tuple[Cause, ...]:
    """Return every cause that the rules see, the first one of the text first.

    Of a build log only the failed steps count, where it says which those are: other steps may
    have stumbled and gone on. Errors come before warnings.
    """
    whole = replace(output, text=output.text[-_MOST:])
    narrowed = replace(output, text=_of_failed_steps(output.text)[-_MOST:])
    found = _found(narrowed)
    if not found and narrowed.text != whole.text:
        found = _found(whole)
    return tuple(found)


def first_cause(output: Output) -> Cause | None:
    """Return the cause to act on, or ``None`` where no rule knows what was said."""
    found = causes(output)
    return found[0] if found else None


def _found(output: Output) -> list[Cause]:
    every = (cause for rule in RULES for cause in rule(output))
    return sorted(every, key=lambda cause: (cause.severity != "error", cause.position))


def _of_failed_steps(text: str) -> str:
    failed = set(_FAILED_STEP.findall(text))
    if not failed:
        return text
    lines = []
    for line in text.splitlines():
        step = _STEP.match(line)
        if step is None or step[1] in failed:
            lines.append(line)
    return "\n".join(lines)
