"""What was asked of the level ``bench`` on the command line."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import AbstractSet, Any, Mapping, Sequence

from rocm_torch_selftest.bench.options import (
    DEFAULT_BUDGET_S,
    Options,
    share_of,
)
from rocm_torch_selftest.bench.workloads import DTYPES

_SAFE_PART = 0.92  # of the budget; second processes are not to use up all of it


@dataclass(frozen=True)
class Request:
    """The options of the call.

    Attributes:
        subset: the only checks that are wanted; all where it is empty.
        dtype: one dtype for all workloads, or None.
        budget_s: seconds that the level is meant to take once kernels are found.
        processes: fresh processes for each workload, None: two where the budget has room.
    """

    subset: tuple[str, ...] = ()
    dtype: str | None = None
    budget_s: float = DEFAULT_BUDGET_S
    processes: int | None = None

    def narrowed(self, required: AbstractSet[str]) -> frozenset[str]:
        """Return those of the required checks that were not left out on purpose."""
        return frozenset(required & set(self.subset) if self.subset else required)

    def options(
        self, environment: Mapping[str, Any], checks: Sequence[str], started: float
    ) -> Mapping[str, Any]:
        """Return what the checks are sent, once the document's environment is known."""
        devices = environment["devices"]
        names = (devices[0]["name"], devices[0]["pci_id"]) if devices else ()
        return asdict(
            Options(
                backend=environment["backend"] or "cpu",
                products=tuple(name for name in names if name),
                dtype=self.dtype,
                share_s=share_of(self.budget_s, len(checks)),
                processes=self.processes,
                deadline=started + _SAFE_PART * self.budget_s,
                after={name: len(checks) - place for place, name in enumerate(checks, 1)},
            )
        )

    def to_json(self) -> Mapping[str, Any]:
        """Return what the document says of the call."""
        return asdict(self)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the level to the parser."""
    group = parser.add_argument_group("level bench")
    group.add_argument("--subset", metavar="CHECK,...", help="measure these only")
    group.add_argument("--dtype", choices=DTYPES, help="the dtype of all workloads")
    group.add_argument(
        "--budget",
        metavar="SECONDS",
        type=_positive(float),
        default=DEFAULT_BUDGET_S,
        help="how long measuring should take; searching kernels comes on top (default: 180)",
    )
    group.add_argument(
        "--processes",
        metavar="N",
        type=_positive(int),
        help="fresh processes for each workload; 5 show clocks that differ from start to start "
        "(default: 2 where the budget has room, else 1)",
    )


def _positive(kind: type) -> Any:
    def parse(text: str) -> Any:
        value = kind(text)
        if not 0 < value < 1e6:
            raise argparse.ArgumentTypeError(f"{text} is not a positive number")
        return value

    return parse


def request_of(call: argparse.Namespace) -> Request:
    """Return what was asked for."""
    subset = tuple(name.strip() for name in (call.subset or "").split(",") if name.strip())
    return Request(subset, call.dtype, call.budget, call.processes)
