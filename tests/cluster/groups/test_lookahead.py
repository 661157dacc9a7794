"""What is brought onto the device ahead of its turn, and who leaves for it."""

from collections.abc import Callable, Sequence

from plait.cluster.messages import CancelRequests, SubmitChunks
from plait.scheduling.function_call import FunctionCall
from plait.scheduling.orders import Fifo
from tests.cluster.groups.fake_process import FakeProcess, chunk
from tests.cluster.groups.test_dispatcher import backward, told


class Preferring(Fifo):
    def __init__(self, deployment: str) -> None:
        super().__init__()
        self.deployment = deployment

    def pick(
        self,
        heads: Sequence[FunctionCall],
        now_s: float,
        service_s: Callable[[FunctionCall], float],
        setup_s: Callable[[str], float],
    ) -> FunctionCall:
        preferred = [head for head in heads if head.deployment == self.deployment]
        return super().pick(preferred or heads, now_s, service_s, setup_s)


def three(device_bytes: int, stages: bool = True) -> FakeProcess:
    return FakeProcess(Fifo(), device_bytes, {"a": 8, "b": 8, "c": 8}, stages)


def test_what_runs_next_comes_to_the_device_beside_what_runs_if_it_fits() -> None:
    process = three(16)
    process.send("a", backward("m", 1))
    process.send("b", backward("m", 1))
    assert process.staged == [("b", ("c",))], "nothing of c waits"
    before = len(process.switches)
    process.end_call()
    assert told(process) == [("a", 1), ("b", 1)]
    assert len(process.switches) == before
    counters = process.dispatcher.counters
    assert (counters.num_prefetches, counters.prefetch_s) == (1, 0.75)


def test_what_has_calls_that_wait_does_not_leave_for_another() -> None:
    process = FakeProcess(Preferring("b"), 16, {"a": 8, "b": 8, "c": 8})
    process.send("a", backward("m", 1))
    process.send("c", backward("m", 1))
    process.send("b", backward("m", 1))
    assert (process.prefetched, process.staged) == (["b"], []), "it comes near at least"
    process.end_call()
    assert told(process) == [("a", 1), ("b", 1)]


def test_one_comes_during_each_call() -> None:
    process = three(24)
    process.resident = ["a"]
    process.dispatcher.residents.report(process.sizes, ["a"])
    process.send("a", SubmitChunks((chunk("r1"),)))
    process.send("b", SubmitChunks((chunk("b1"),)))
    process.send("b", CancelRequests(("b1",)))
    process.send("c", SubmitChunks((chunk("c1"),)))
    assert process.staged == [("b", ())]
    assert process.prefetched == ["b", "c"]


def test_a_call_goes_on_whose_deployment_did_not_come_beside_another() -> None:
    process = three(16, stages=False)
    process.send("a", backward("m", 1))
    process.send("b", backward("m", 1))
    process.end_call()
    assert told(process) == [("a", 1), ("b", 1)]
    assert process.dispatcher.counters.num_prefetches == 0
