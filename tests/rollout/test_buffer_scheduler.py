"""A buffer as a scheduler over several engines."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from plait.rollout.buffer_scheduler import BufferScheduler
from plait.rollout.engine_state import EngineState
from plait.rollout.scheduler import placement_tokens
from tests.rollout.on_loop import request

randoms = st.randoms(use_true_random=False)


@settings(deadline=None, max_examples=60)
@given(randoms, st.integers(1, 3))
def test_all_are_served_in_order_and_only_where_they_fit(random: Random, num_engines: int) -> None:
    scheduler = BufferScheduler(chunk_tokens=5)
    capacity = {f"e{n}": 24 + 8 * n for n in range(num_engines)}
    running: dict[str, tuple[str, int]] = {}
    arrived: list[str] = []
    for number in range(20):
        scheduler.add(request(number, max_new_tokens=random.randint(1, 20)))
    while scheduler.num_running + scheduler.num_waiting:
        states = [_state(name, tokens, running) for name, tokens in capacity.items()]
        placement = scheduler.place(states)
        if placement is not None:
            name, chosen = placement.request.request_id, next(state for state in states if state.name == placement.engine)
            assert placement.footprint_tokens == placement_tokens(placement.request, placement.budget_tokens)
            assert chosen.has_room(placement.footprint_tokens)
            running[name] = (placement.engine, placement.footprint_tokens)
            placement.request.engine = placement.engine
            arrived += [name] * (not placement.request.tokens)
            continue
        assert running, "something always runs while something waits"
        name = random.choice(sorted(running))
        _end(scheduler, name, running)
    assert arrived == sorted(arrived, key=lambda name: int(name[1:]))


def _state(name: str, capacity: int, running: dict[str, tuple[str, int]]) -> EngineState:
    mine = [tokens for engine, tokens in running.values() if engine == name]
    return EngineState(name, capacity, sum(mine), 3, len(mine))


def _end(scheduler: BufferScheduler, name: str, running: dict[str, tuple[str, int]]) -> None:
    del running[name]
    done = scheduler.running(name)
    assert done is not None
    budget = done.chunk_budget(5)
    done.tokens += [1] * budget
    if len(done.tokens) == done.sampling.max_new_tokens:
        scheduler.finish(name)
    else:
        scheduler.requeue(name)


def test_what_fits_no_engine_is_placed_nowhere_and_told() -> None:
    scheduler = BufferScheduler(chunk_tokens=50)
    scheduler.add(request(1, max_new_tokens=50))
    placement = scheduler.place([EngineState("e", 40, 0, 2, 0)])
    assert placement is not None
    assert placement.engine == ""
    assert "need 53 tokens of cache; the largest engine has 40" in placement.problem
    assert scheduler.finish("r1").request_id == "r1"
    assert scheduler.num_running + scheduler.num_waiting == 0


def test_who_is_next_waits_for_room_or_leaves_the_turn_to_others() -> None:
    scheduler = BufferScheduler(chunk_tokens=20)
    for number, tokens in ((1, 20), (2, 1)):
        scheduler.add(request(number, max_new_tokens=tokens))
    full = [EngineState("e", 40, 30, 4, 1)]
    assert scheduler.place(full) is None
    assert (scheduler.num_running, scheduler.num_waiting, scheduler.running("r1")) == (0, 2, None)
    assert not scheduler.remove("r1"), "it was not running"
    placement = scheduler.place(full)
    assert placement is not None
    assert placement.request.request_id == "r2"
    scheduler.requeue_running("another")
    assert scheduler.num_running == 1
    scheduler.requeue_running("e")
    assert (scheduler.num_running, scheduler.num_waiting) == (0, 1)
