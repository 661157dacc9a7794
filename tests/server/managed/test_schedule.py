"""Which run starts next."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from plait.server.managed.schedule import next_runs

tenants = st.sampled_from("abc")


def test_of_two_tenants_the_one_with_fewer_running_goes_first() -> None:
    waiting = [("1", "a"), ("2", "a"), ("3", "b")]
    assert next_runs(waiting, ["a"], max_running=2) == ["3"]
    assert next_runs(waiting, [], max_running=2) == ["1", "3"]
    assert next_runs(waiting, [], max_running=9) == ["1", "3", "2"]
    assert next_runs(waiting, ["a"] * 9, max_running=9) == []


@given(st.lists(tenants), st.lists(tenants), st.integers(1, 8))
def test_places_are_filled_once_and_in_order(waiting: list[str], running: list[str], most: int) -> None:
    runs = [(str(index), tenant) for index, tenant in enumerate(waiting)]
    started = next_runs(runs, running, most)
    assert len(started) == len(set(started)) == min(len(waiting), max(0, most - len(running)))
    for tenant in "abc":
        own = [int(run) for run in started if waiting[int(run)] == tenant]
        assert own == sorted(own)
    counts = Counter(running) + Counter(waiting[int(run)] for run in started)
    left = {tenant for index, tenant in enumerate(waiting) if str(index) not in started}
    for run in started:
        assert all(counts[waiting[int(run)]] <= counts[other] + 1 or waiting[int(run)] in running for other in left)
