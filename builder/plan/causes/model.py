"""The values of the classifier: what was said, a rule, and the cause that it finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from builder.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Output:
    """What a build, a container or an engine said, and what is known about it.

    Attributes:
        text: standard output and error, or a build log, as lines.
        exit_code: status it ended with; ``None`` where it is not known.
        pip_args: arguments of the pip call, where the log is one of pip.
        requirements: names that the user's requirements ask for.
        installed: versions by name that the base image had before.
        versions: versions by name of what spoke (docker, requests, ...), for the message.
        exported: whether an image came out all the same.
    """

    text: str
    exit_code: int | None = None
    pip_args: str = ""
    requirements: tuple[str, ...] = ()
    installed: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    exported: bool = False


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something failed.

    Attributes:
        problem: what, why and what to do.
        position: where in the text it was seen; earlier ones come first.
        retryable: whether the same call can succeed later without a change.
        wait_seconds: how long to wait before that, where somebody said it.
        severity: ``warning`` where the result can be used all the same.
    """

    problem: Problem
    position: int = 0
    retryable: bool = False
    wait_seconds: float | None = None
    severity: Severity = "error"

    @property
    def code(self) -> str:
        """Return the stable code of the problem."""
        return self.problem.code


Rule = Callable[[Output], Iterator[Cause]]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A rule that is one regular expression and the words for what it found.

    Attributes:
        code: of the problem.
        seen: what to look for; its named groups can stand in braces in the words. A group that
            took no part is "unknown" there.
        what: the sentence.
        why: the fact behind it.
        fix: what to do.
        beside: must be somewhere in the text as well, where it is given.
        unless: must not be anywhere in the text.
        retryable: see :class:`Cause`.
        wait: seconds to wait where the text names no other: group ``wait``, in seconds.
        on_success: also looked for when the program ended with status 0.
        severity: see :class:`Cause`.
    """

    code: str
    seen: re.Pattern[str]
    what: str
    why: str | None = None
    fix: str | None = None
    beside: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    retryable: bool = False
    wait: float | None = None
    on_success: bool = False
    severity: Severity = "error"

    def __call__(self, output: Output) -> Iterator[Cause]:
        """Yield the cause where the text shows it."""
        if output.exit_code == 0 and not self.on_success:
            return
        found = self.seen.search(output.text)
        if found is None:
            return
        if self.beside is not None and not self.beside.search(output.text):
            return
        if self.unless is not None and self.unless.search(output.text):
            return
        words = {name: (value or "unknown").strip() for name, value in found.groupdict().items()}
        yield Cause(
            Problem(
                code=self.code,
                what=self.what.format_map(words),
                why=self.why.format_map(words) if self.why else None,
                fix=self.fix.format_map(words) if self.fix else None,
            ),
            position=found.start(),
            retryable=self.retryable,
            wait_seconds=_seconds(found) or self.wait,
            severity=self.severity,
        )


def regex(pattern: str) -> re.Pattern[str]:
    """Compile a pattern over lines: ``^`` and ``$`` are a line's, case does not count."""
    return re.compile(pattern, re.MULTILINE | re.IGNORECASE)


def _seconds(found: re.Match[str]) -> float | None:
    text = found.groupdict().get("wait")
    return float(text) if text else None
