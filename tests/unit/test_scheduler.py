from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.pipeline.scheduler import (
    BUILD,
    PUBLISH,
    SBOM,
    TEST,
    TEST_ON_GPU,
    Board,
    Needs,
    Slots,
    Turn,
)

KINDS = st.sampled_from([BUILD, TEST, TEST_ON_GPU, SBOM, PUBLISH, Needs()])
CHAINS = st.lists(st.lists(KINDS, max_size=5), max_size=8)
SLOTS = st.builds(Slots.of, st.integers(1, 128), st.integers(1, 64))


def simulate(
    chains: list[list[Needs]], slots: Slots, seed: int, fails: float = 0.0
) -> tuple[list[Turn], list[Turn]]:
    """Run a board with steps that end in a random order; check it at each moment."""
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    board = Board.start(chains, slots)
    begun: list[Turn] = []
    failed: list[Turn] = []
    running: list[Turn] = []
    while True:
        while (turn := board.next()) is not None:
            earlier = [ready for ready in board.ready() if ready.cell < turn.cell]
            assert all(board.free.lacking(board.needs(ready)) for ready in earlier)
            board = board.started(turn)
            running.append(turn)
            begun.append(turn)
        occupied = [chains[turn.cell][turn.step] for turn in running]
        for name in ("cpu", "disk", "network", "gpu"):
            used = sum(getattr(needs, name) for needs in occupied)
            assert used + getattr(board.free, name) == getattr(slots, name)
            assert getattr(board.free, name) >= 0
        if not running:
            return begun, failed
        ended = running.pop(chance.randrange(len(running)))
        well = chance.random() >= fails
        board = board.ended(ended, well=well)
        if not well:
            failed.append(ended)


@given(CHAINS, SLOTS, st.integers())
def test_every_step_runs_once_and_in_the_order_of_its_cell(
    chains: list[list[Needs]], slots: Slots, seed: int
) -> None:
    begun, _ = simulate(chains, slots, seed)
    for cell, chain in enumerate(chains):
        assert [turn.step for turn in begun if turn.cell == cell] == list(range(len(chain)))


@given(CHAINS, SLOTS, st.integers())
def test_the_same_ends_give_the_same_order(
    chains: list[list[Needs]], slots: Slots, seed: int
) -> None:
    assert simulate(chains, slots, seed) == simulate(chains, slots, seed)


@given(CHAINS, SLOTS, st.integers())
def test_a_failure_stops_the_later_steps_of_its_own_cell_alone(
    chains: list[list[Needs]], slots: Slots, seed: int
) -> None:
    begun, failed = simulate(chains, slots, seed, fails=0.3)
    last = {turn.cell: turn.step for turn in failed}
    for cell, chain in enumerate(chains):
        count = last.get(cell, len(chain) - 1) + 1
        assert [turn.step for turn in begun if turn.cell == cell] == list(range(count))


def test_a_later_step_of_an_earlier_cell_goes_before_an_earlier_step_of_a_later_cell() -> None:
    board = Board.start([[BUILD, TEST], [BUILD], [BUILD]], Slots.of(2, 1))
    board = board.started(Turn(0, 0)).ended(Turn(0, 0), well=True)
    assert board.next() == Turn(0, 1)
    board = board.started(Turn(0, 1))
    assert board.next() is None
    assert dict(board.waiting()) == {Turn(1, 0): ("cpu",), Turn(2, 0): ("cpu",)}


def test_one_test_at_a_time_has_the_gpu_and_a_build_goes_on_beside_it() -> None:
    board = Board.start([[TEST_ON_GPU], [TEST_ON_GPU], [BUILD]], Slots.of(16, 4))
    board = board.started(Turn(0, 0))
    assert board.next() == Turn(2, 0)
    assert dict(board.waiting()) == {Turn(1, 0): ("gpu",)}


def test_a_step_that_could_never_start_is_refused() -> None:
    with pytest.raises(ValueError, match="too little gpu"):
        Board.start([[Needs(gpu=2)]], Slots.of(2, 2))


def test_an_upload_finds_network_while_all_builds_run() -> None:
    slots = Slots.of(2, 2)
    board = Board.start([[BUILD], [BUILD], [PUBLISH]], slots)
    board = board.started(Turn(0, 0)).started(Turn(1, 0))
    assert board.next() == Turn(2, 0)
