"""What can go wrong, as values: each failure knows its exit code and says what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, told so that the reader can act.

    Attributes:
        code: stable upper-case identifier, e.g. ``UNQUOTED_VERSION``.
        what: one sentence about what is wrong, with the value that was read.
        where: ``file:line``, a cell id, a URL or a path; ``None`` where there is no place.
        why: the rule or fact behind it, when the sentence alone does not carry it.
        fix: what to write, run or set.
    """

    code: str
    what: str
    where: str | None = None
    why: str | None = None
    fix: str | None = None

    def __str__(self) -> str:
        """Tell the problem on one to three lines."""
        head = f"{self.where}: {self.what}" if self.where else self.what
        lines = [f"{head} [{self.code}]"]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, str | None]:
        """Return the problem as a JSON object with the keys of this class."""
        return asdict(self)


class RocmTorchError(Exception):
    """Base of all failures that are meant for the user: never shown with a traceback.

    ``answer`` is what was done all the same, as the command's JSON object; it goes with the error.
    """

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "error"

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = (
            (problems,) if isinstance(problems, Problem) else tuple(problems)
        )
        self.answer: dict[str, Any] | None = None
        super().__init__("\n".join(str(problem) for problem in self.problems))


class CouldNotError(RocmTorchError):
    """The network, the engine or a tool did not do its part (exit 1)."""

    exit_code = 1
    kind = "could-not"


class RefusedError(RocmTorchError):
    """A rule says no: invalid matrix, drift, failed test or gate (exit 2)."""

    exit_code = 2
    kind = "refused"


class IncompleteError(RocmTorchError):
    """Nothing failed and not everything required was done (exit 3)."""

    exit_code = 3
    kind = "incomplete"


class BadCallError(RocmTorchError):
    """The command line itself is wrong (exit 64)."""

    exit_code = 64
    kind = "bad-call"
