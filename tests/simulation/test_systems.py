"""The systems compared: each does what it is there for."""

from collections import Counter

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.rollout.context_scheduler import ContextScheduler
from plait.simulation.drafts import SEER_ACCEPTANCE, DraftModel
from plait.simulation.engine_kinds import EngineKind
from plait.simulation.light_request import light_request
from plait.simulation.pinned_scheduler import PinnedScheduler
from plait.simulation.rollout import SimulatedRollout
from plait.types.policy import PolicyVersion
from tests.simulation.even_costs import EvenCosts

OWN, PREEMPTING, DRAFTING = EngineKind(), EngineKind(preempts=True), EngineKind(drafts=True)
POLICY = PolicyVersion("tenant", "task", 0)


def roll_out(
    lengths: list[int], kind: EngineKind, cache_tokens: int, cancelled: int = 0, is_staged: bool = False
) -> tuple[SimulatedRollout, dict[str, tuple[float, int]]]:
    """Groups of four on two engines; request -> (end, tokens)."""
    env, names = simpy.Environment(), ["e0", "e1"]
    scheduler = PinnedScheduler(names) if kind.preempts else ContextScheduler()
    rollout = SimulatedRollout(
        env, scheduler, dict.fromkeys(names, EvenCosts()), cache_tokens, 8, 10, kind=kind, is_staged=is_staged
    )  # fmt: skip
    ended: dict[str, tuple[float, int]] = {}
    for number, length in enumerate(lengths):
        request = light_request(f"r{number}", "task", POLICY, 5, 60, f"g{number // 4}")
        rollout.submit(request, length, lambda done: ended.update({done.request_id: (env.now, len(done.tokens))}))

    def cancel(_: object) -> None:
        for number in range(cancelled):
            rollout.cancel(f"r{number}")

    env.timeout(7.3).callbacks.append(cancel)
    env.run()
    return rollout, ended


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=16), st.sampled_from([OWN, PREEMPTING, DRAFTING]),
    st.sampled_from([80, 200, 2000]), st.integers(0, 3),
)  # fmt: skip
def test_whatever_the_engine_each_request_draws_its_length_once_and_nothing_is_left(
    lengths: list[int], kind: EngineKind, cache_tokens: int, cancelled: int
) -> None:
    rollout, ended = roll_out(lengths, kind, cache_tokens, cancelled)
    assert all(tokens == lengths[int(name[1:])] for name, (_, tokens) in ended.items())
    assert {f"r{number}" for number in range(cancelled, len(lengths))} <= ended.keys()
    assert (rollout.scheduler.num_running, rollout.scheduler.num_waiting) == (0, 0)
    assert not rollout.lengths
    assert rollout.caches.stored_tokens == 0
    for engine in rollout.engines.values():
        assert (engine.num_rows, engine.context_tokens) == (0, 0)
        assert engine.most_context_tokens <= cache_tokens or not kind.preempts


def test_where_caches_overflow_rows_are_given_up_and_computed_again() -> None:
    rollout, _ = roll_out([50] * 16, PREEMPTING, 150)
    assert sum(engine.num_preemptions for engine in rollout.engines.values()) > 0  # type: ignore[attr-defined]
    computed = sum(engine.num_computed_tokens for engine in rollout.engines.values())
    assert computed > rollout.caches.counts.computed_tokens == 4 * 5
    ample, _ = roll_out([50] * 16, PREEMPTING, 5000)
    assert sum(engine.num_computed_tokens for engine in ample.engines.values()) == 4 * 5


def test_chunks_find_their_caches_and_prompts_are_computed_once_a_group() -> None:
    rollout, _ = roll_out([35] * 16, OWN, 150)
    counts = rollout.caches.counts
    assert counts.computed_tokens == 4 * 5
    assert counts.hit_tokens > 0
    assert counts.most_stored_tokens > 0


def test_a_stage_gives_no_answer_before_its_last_one() -> None:
    _, ended = roll_out([3, 9, 50, 4], OWN, 1000, is_staged=True)
    assert len({end_s for end_s, _ in ended.values()}) == 1


def test_drafts_pay_with_few_rows_and_more_with_finished_siblings() -> None:
    class Light(EvenCosts):
        def verify_step_s(self, num_rows: int, context_tokens: int, tokens_per_row: float) -> float:
            return 1 + 0.001 * num_rows * tokens_per_row

    model = DraftModel(Light())
    alone, with_siblings = model.plan([0], 100)[0], model.plan([15], 100)[0]
    assert 1 < alone[1] <= 1.71
    assert alone[1] < with_siblings[1] <= 2.86
    assert SEER_ACCEPTANCE.chance(0) < SEER_ACCEPTANCE.chance(7) < SEER_ACCEPTANCE.chance(15)


def test_drafts_shorten_a_rollout() -> None:
    plain, drafted = (max(end_s for end_s, _ in roll_out([50] * 4, kind, 1000)[1].values()) for kind in (OWN, DRAFTING))
    assert drafted < 0.8 * plain


@pytest.mark.parametrize("num_groups", [1, 5])
def test_groups_are_pinned_round_robin(num_groups: int) -> None:
    scheduler = PinnedScheduler(["e0", "e1"])
    for number in range(4 * num_groups):
        scheduler.add(light_request(f"r{number}", "task", POLICY, 5, 60, f"g{number // 4}"))
    placements = [scheduler.place([]) for _ in range(4 * num_groups)]
    counts = Counter(placement.engine for placement in placements if placement is not None)
    assert counts == {name: 4 * num for name, num in (("e0", (num_groups + 1) // 2), ("e1", num_groups // 2)) if num}
