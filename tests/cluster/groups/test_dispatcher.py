"""What a worker group's process is told, and when: against a process that checks the rules and does no work."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.cluster.groups.messages import RunCall
from plait.cluster.messages import CancelRequests, SubmitChunks
from plait.cluster.model_messages import CloseModel, DiscardGradients, ForwardBackward, OptimStep, ScorePrompt
from plait.scheduling.function_call import FunctionCall
from plait.scheduling.orders import ORDERS, Fifo, Hrrs, Order
from tests.cluster.groups.fake_process import POLICY, FakeProcess, chunk


def group(order: Order | None = None, device_bytes: int = 10) -> FakeProcess:
    return FakeProcess(order or Hrrs(), device_bytes, {"a": 8, "b": 8})


def backward(model: str, seq_id: int) -> ForwardBackward:
    return ForwardBackward(model, seq_id, (), "{}")


def told(process: FakeProcess) -> list[tuple[str, int]]:
    return [(call.deployment, call.message.seq_id) for call in process.calls]  # type: ignore[union-attr]


def test_one_call_at_a_time_and_its_deployment_is_brought_first() -> None:
    process = group()
    process.send("a", backward("m", 1))
    process.send("b", backward("m", 1))
    process.send("a", OptimStep("m", 2, "{}"))
    assert (told(process), process.resident) == ([("a", 1)], ["a"])
    process.end_call()
    process.end_call()
    process.end_call()
    assert sorted(told(process)) == [("a", 1), ("a", 2), ("b", 1)]
    assert len(process.switches) <= 3


def test_calls_of_one_model_keep_their_order() -> None:
    process = group()
    for seq_id in range(5):
        process.send("a", backward("m", seq_id) if seq_id % 2 else OptimStep("m", seq_id, "{}"))
    for _ in range(5):
        process.end_call()
    assert told(process) == [("a", seq_id) for seq_id in range(5)]


def test_what_fits_together_is_never_switched() -> None:
    process = group(device_bytes=16)
    process.send("a", backward("m", 1))
    process.end_call()
    before = len(process.switches)
    for seq_id in range(2, 6):
        process.send("b", backward("m", seq_id))
        process.end_call()
        process.send("a", backward("m", seq_id))
        process.end_call()
    assert len(process.switches) == before


def test_a_turn_of_sampling_goes_on_while_nobody_else_waits() -> None:
    process = group()
    process.send("a", SubmitChunks((chunk("r1"), chunk("r2"))))
    process.send("a", SubmitChunks((chunk("r3"),)))
    assert sorted(process.chunks) == ["r1", "r2", "r3"]
    process.end_chunk("r1", chunk("r4"))
    assert sorted(process.chunks) == ["r2", "r3", "r4"]


@pytest.mark.parametrize("order", [Hrrs, Fifo])
def test_a_turn_of_sampling_ends_at_the_boundaries_of_chunks_when_another_waits(order: Callable[[], Order]) -> None:
    process = group(order())
    process.send("a", SubmitChunks((chunk("r1"), chunk("r2"))))
    process.now_s = 1.0
    process.send("b", backward("m", 1))
    process.now_s = 100.0
    process.end_chunk("r1", chunk("r3"))
    assert (list(process.chunks), process.running) == (["r2"], None)
    process.end_chunk("r2", chunk("r4"))
    assert isinstance(process.running, RunCall)
    assert process.running.deployment == "b"
    process.now_s = 101.0
    process.end_call()
    assert sorted(process.chunks) == ["r3", "r4"], "and goes on after it"


def test_a_turn_of_sampling_goes_on_as_long_as_the_order_prefers_it_to_a_switch() -> None:
    process = group(Hrrs())
    process.send("a", SubmitChunks((chunk("r1"),)))
    process.now_s = 1.0
    process.send("b", backward("m", 1))
    process.now_s = 2.0
    process.end_chunk("r1", chunk("r2"))
    assert list(process.chunks) == ["r2"], "what is there has no setup"


def test_chunks_that_go_on_past_their_budgets_end_as_soon_as_somebody_waits() -> None:
    process = group(Fifo())
    process.send("a", SubmitChunks((chunk("r1"),)))
    assert process.ended_stretches == []
    process.send("b", backward("m", 1))
    process.send("b", backward("m", 2))
    assert process.ended_stretches == ["a"]
    process.end_chunk("r1")
    process.send("a", SubmitChunks((chunk("r2"),)))
    process.end_call()
    process.end_call()
    assert list(process.chunks) == ["r2"]
    assert process.ended_stretches == ["a"]


def test_only_who_samples_is_told_to_keep_to_budgets_as_it_winds_down() -> None:
    process = group()
    process.send("a", SubmitChunks((chunk("r1"),)))
    for deployment in "ab":
        process.dispatcher.wind_down(deployment)
    process.exchange()
    assert process.ended_stretches == ["a"], "who only trains ends at what it does not know"


def test_a_cancelled_request_is_answered_once_wherever_it_is() -> None:
    process = group()
    process.send("b", backward("m", 1))
    process.send("a", SubmitChunks((chunk("held"),)))
    process.send("a", ScorePrompt("prompt", POLICY, (1, 2)))
    process.send("a", CancelRequests(("held", "unknown")))
    assert process.answers["a"] == ["held"]
    process.end_call()
    assert list(process.chunks) == ["prompt"]
    process.send("a", CancelRequests(("prompt", "held")))
    assert process.answers["a"] == ["held", "prompt"]
    assert process.dispatcher.queue.running is None


def test_nothing_is_left_of_a_turn_whose_requests_were_all_cancelled() -> None:
    process = group()
    process.send("b", backward("m", 1))
    process.send("a", SubmitChunks((chunk("held"),)))
    process.send("a", CancelRequests(("held",)))
    process.end_call()
    assert (process.chunks, len(process.dispatcher.queue)) == ({}, 0)


def test_closing_a_model_drops_its_calls_that_wait_and_passes_at_once() -> None:
    process = group()
    process.send("a", backward("m", 1))
    process.send("a", backward("m", 2))
    process.send("a", DiscardGradients("m"))
    process.send("a", backward("other", 1))
    process.send("a", CloseModel("m"))
    process.end_call()
    process.end_call()
    assert told(process) == [("a", 1), ("a", 1)]
    assert len(process.dispatcher.queue) == 0


def test_a_deployment_that_leaves_takes_its_calls_and_its_turn_with_it() -> None:
    process = group()
    process.send("a", SubmitChunks((chunk("r1"),)))
    process.send("a", backward("m", 1))
    process.send("b", backward("m", 7))
    process.dispatcher.unhost("a", process.now_s)
    process.exchange()
    assert told(process) == [("b", 7)]
    process.end_call()
    assert len(process.dispatcher.queue) == 0


def test_what_runs_next_is_prefetched_once() -> None:
    process = group()
    process.send("a", backward("m", 1))
    process.prefetched.clear()
    process.send("b", backward("m", 1))
    process.send("b", backward("n", 1))
    assert process.prefetched == ["b"]


def test_times_are_learnt() -> None:
    process = group()
    process.send("a", backward("m", 1))
    process.end_call(service_s=3.0)
    call = FunctionCall("x", "a", "forward_backward", "m", 0, 0.0)
    assert process.dispatcher.services.estimate_s(call) == 3.0
    process.send("b", backward("m", 1))
    process.end_call()
    assert process.dispatcher.residents.setup_s("a") == 0.75


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["chunks", "prompt", "call", "end", "end", "end", "cancel"]), st.sampled_from("abc"), st.integers(0, 3)
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(actions=ACTIONS, order=st.sampled_from(sorted(ORDERS)), device_bytes=st.sampled_from([8, 16, 24]), stages=st.booleans())
def test_everything_is_answered_once_in_every_order(
    actions: list[tuple[str, str, int]], order: str, device_bytes: int, stages: bool
) -> None:
    process = FakeProcess(ORDERS[order](), device_bytes, {"a": 8, "b": 8, "c": 8}, stages)
    sent: Counter[tuple[str, str]] = Counter()
    calls: dict[tuple[str, str], int] = Counter()
    for number, (action, deployment, choice) in enumerate(actions):
        process.now_s += 1.0
        match action:
            case "chunks":
                names = [f"{number}-{n}" for n in range(choice + 1)]
                sent.update((deployment, name) for name in names)
                process.send(deployment, SubmitChunks(tuple(chunk(name) for name in names)))
            case "prompt":
                sent[deployment, f"{number}"] += 1
                process.send(deployment, ScorePrompt(f"{number}", POLICY, (1, 2)))
            case "call":
                model = f"m{choice}"
                calls[deployment, model] += 1
                process.send(deployment, backward(model, calls[deployment, model]))
            case "cancel":
                process.send(deployment, CancelRequests(tuple(name for owner, name in sent if owner == deployment)))
            case "end":
                end_something(process, choice)
    while process.running is not None or process.chunks:
        process.now_s += 1.0
        end_something(process, 0)
    assert Counter((owner, name) for owner, names in process.answers.items() for name in names) == sent
    ran: dict[tuple[str, str], list[int]] = {}
    for call in process.calls:
        message = call.message
        assert isinstance(message, ForwardBackward)
        ran.setdefault((call.deployment, message.model_id), []).append(message.seq_id)
    assert ran == {key: list(range(1, count + 1)) for key, count in calls.items()}
    assert len(process.dispatcher.queue) == 0
    assert process.dispatcher.queue.running is None


def end_something(process: FakeProcess, choice: int) -> None:
    if process.running is not None:
        process.end_call()
    elif process.chunks:
        process.end_chunk(sorted(process.chunks)[choice % len(process.chunks)])
