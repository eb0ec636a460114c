"""Which step of which cell runs next: a pure board of slots, without threads and without a clock.

Steps of one cell follow each other; steps of different cells run at the same time where slots are
free. A step takes all that it needs at once or nothing, so no two steps can wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Needs:
    """What a step occupies while it runs, in slots."""

    cpu: int = 0
    disk: int = 0
    network: int = 0
    gpu: int = 0


# Unpacking and compressing; the packages come over the network.
BUILD = Needs(cpu=1, disk=1, network=1)
TEST = Needs(cpu=1)
# One test at a time has the devices: another would falsify what it measures, and take its memory.
TEST_ON_GPU = Needs(gpu=1)
SBOM = Needs(cpu=1)
PUBLISH = Needs(network=1)


@dataclass(frozen=True, slots=True)
class Slots:
    """What is there to be occupied."""

    cpu: int
    disk: int
    network: int
    gpu: int = 1

    @classmethod
    def of(cls, cores: int, jobs: int) -> Slots:
        """Return the slots of a machine with ``cores`` cores for ``jobs`` heavy steps at a time.

        Publishing waits for the other side most of the time: beside the builds there is network
        for as many uploads, and on machines with many cores for more. So a slow upload keeps no
        core idle.
        """
        return cls(cpu=jobs, disk=jobs, network=jobs + max(jobs, min(4, cores // 2)))

    def lacking(self, needs: Needs) -> tuple[str, ...]:
        """Return the names of the resources of which too little is here for ``needs``."""
        return tuple(
            field.name
            for field in fields(self)
            if getattr(self, field.name) < getattr(needs, field.name)
        )

    def without(self, needs: Needs) -> Slots:
        """Return what is left when ``needs`` are taken."""
        return self._changed(needs, -1)

    def with_back(self, needs: Needs) -> Slots:
        """Return what is there when ``needs`` are given back."""
        return self._changed(needs, 1)

    def _changed(self, needs: Needs, sign: int) -> Slots:
        return Slots(
            self.cpu + sign * needs.cpu,
            self.disk + sign * needs.disk,
            self.network + sign * needs.network,
            self.gpu + sign * needs.gpu,
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of one cell, by their places."""

    cell: int
    step: int


@dataclass(frozen=True, slots=True)
class Board:
    """Where every cell stands and what is free.

    Attributes:
        chains: for each cell what its steps need, in their order.
        free: what is not occupied.
        position: for each cell the first step that has not ended.
        running: cells of which a step runs.
        over: cells of which a step failed: nothing more is started for them.
    """

    chains: tuple[tuple[Needs, ...], ...]
    free: Slots
    position: tuple[int, ...]
    running: frozenset[int] = frozenset()
    over: frozenset[int] = frozenset()

    @classmethod
    def start(cls, chains: Sequence[Sequence[Needs]], slots: Slots) -> Board:
        """Return the board before anything runs.

        Raises:
            ValueError: a step needs more than there is, so it could never start.
        """
        for needs in {needs for chain in chains for needs in chain}:
            if lacking := slots.lacking(needs):
                raise ValueError(f"{needs} can never start: too little {', '.join(lacking)}")
        return cls(tuple(tuple(chain) for chain in chains), slots, (0,) * len(chains))

    def ready(self) -> tuple[Turn, ...]:
        """Return the steps that only slots can keep from running: earlier cells first.

        So a later step of an earlier cell goes before an earlier step of a later cell.
        """
        return tuple(
            Turn(cell, step)
            for cell, step in enumerate(self.position)
            if step < len(self.chains[cell]) and cell not in self.running and cell not in self.over
        )

    def needs(self, turn: Turn) -> Needs:
        """Return what the step of ``turn`` needs."""
        return self.chains[turn.cell][turn.step]

    def next(self) -> Turn | None:
        """Return the step to start now; None where none can."""
        return next(
            (turn for turn in self.ready() if not self.free.lacking(self.needs(turn))), None
        )

    def waiting(self) -> tuple[tuple[Turn, tuple[str, ...]], ...]:
        """Return the steps that wait, each with the resources it waits for."""
        lacking = ((turn, self.free.lacking(self.needs(turn))) for turn in self.ready())
        return tuple((turn, names) for turn, names in lacking if names)

    def started(self, turn: Turn) -> Board:
        """Return the board after ``turn`` took its slots."""
        free = self.free.without(self.needs(turn))
        return replace(self, free=free, running=self.running | {turn.cell})

    def ended(self, turn: Turn, *, well: bool) -> Board:
        """Return the board after ``turn`` gave its slots back; a failure ends its cell alone."""
        position = list(self.position)
        position[turn.cell] += 1
        return replace(
            self,
            free=self.free.with_back(self.needs(turn)),
            position=tuple(position),
            running=self.running - {turn.cell},
            over=self.over if well else self.over | {turn.cell},
        )
