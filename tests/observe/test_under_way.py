"""What takes long is told in time, once for all who do the same, and again; what is over is not."""

import io
import threading
import time

from hypothesis import given
from hypothesis import strategies as st

from plait.observe.live import LiveView
from plait.observe.under_way import AGAIN_S, PATIENCE_S, UnderWay

ROUNDING_S = 1e-9


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_what_takes_long_is_told_and_told_again() -> None:
    clock = Clock()
    under_way = UnderWay(clock)
    with under_way.doing("sums", "rollout", "rolling out step 1", 64) as work:
        clock.now_s = 1.9
        assert under_way.due() == []
        clock.now_s, work.num_done = 2.0, 5
        assert under_way.due() == ["sums 5/64: rolling out step 1, 2.0 s so far"]
        assert under_way.due() == []
        clock.now_s, work.num_done = 32.0, 60
        assert under_way.due() == ["sums 60/64: rolling out step 1, 32 s so far"]
    clock.now_s = 100.0
    assert under_way.due() == []


def test_of_the_next_of_a_kind_it_is_known_that_it_takes_long() -> None:
    clock = Clock()
    under_way = UnderWay(clock)
    under_way.begin("sums", "training", "training step 1")
    clock.now_s = 3.0
    assert under_way.due() == ["sums: training step 1, 3.0 s so far"]
    under_way.begin("sums", "training", "training step 2")
    clock.now_s = 3.0 + PATIENCE_S
    assert under_way.due() == []
    clock.now_s = 3.0 + AGAIN_S
    assert under_way.due() == ["sums: training step 2, 30 s so far"]


def test_those_who_do_the_same_share_a_line() -> None:
    clock = Clock()
    under_way = UnderWay(clock)
    for worker in ("rollout", "train"):
        under_way.begin(worker, "start", "loading the model")
    under_way.begin("", "start", "starting the workers")
    clock.now_s = 4.0
    assert under_way.due() == ["rollout, train: loading the model, 4.0 s so far", "starting the workers, 4.0 s so far"]
    under_way.end_all("train")
    assert under_way.now() == ["loading the model", "starting the workers"]


@given(st.lists(st.tuples(st.sampled_from("be"), st.sampled_from("xyz"), st.floats(0, 20)), max_size=60))
def test_a_line_is_told_of_what_goes_on_at_most_every_so_often(steps: list[tuple[str, str, float]]) -> None:
    clock = Clock()
    under_way = UnderWay(clock)
    going: dict[str, float] = {}
    told: dict[str, float] = {}
    for number, (action, who, pause_s) in enumerate(steps):
        if action == "b":
            under_way.begin(who, "k", f"work of {who} {number}")
            going[who] = clock.now_s
        else:
            under_way.end(who, "k")
            going.pop(who, None)
        clock.now_s += pause_s
        for line in under_way.due():
            who = line.partition(":")[0]
            assert clock.now_s - going[who] >= PATIENCE_S - ROUNDING_S
            assert clock.now_s - told.get(who, -AGAIN_S) >= AGAIN_S - ROUNDING_S
            told[who] = clock.now_s


def test_output_that_is_no_terminal_is_told_while_nothing_happens() -> None:
    clock, stream = Clock(), io.StringIO()
    under_way = UnderWay(clock)
    with LiveView(stream=stream, under_way=under_way):
        under_way.begin("rollout", "start", "testing batch invariance")
        clock.now_s = 5.0
        deadline_s = time.monotonic() + 60
        while not stream.getvalue() and time.monotonic() < deadline_s:
            time.sleep(0.02)
    assert stream.getvalue().endswith("  rollout: testing batch invariance, 5.0 s so far\n")
    assert not any(thread.name == "live-view" for thread in threading.enumerate())
