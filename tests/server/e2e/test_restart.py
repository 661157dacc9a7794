"""P16: the server or a worker is killed at any point, and every client finishes with the right weights.

A run killed here and there must end with the very loss of an undisturbed one: nothing is lost, nothing happens twice.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tinker
from tinker import types

from tests.server.e2e.data import ADAM, PROMPT, datum, loss, sampled, supervised, training_client
from tests.server.e2e.wire import Wire
from tests.server.server_process import ALIAS, ServerProcess, running_server

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
STEPS = 3
HOOK = Path(__file__).parents[1] / "crash" / "hook"
KILL_AT = "kill-at"


@pytest.fixture(scope="module")
def breakable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of these tests alone, which each leaves running. What is written to KILL_AT kills it or a worker."""
    folder = tmp_path_factory.mktemp("breakable")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HOOK), prepend=os.pathsep)
        patch.setenv("PLAIT_TEST_KILL_AT", str(folder / KILL_AT))
        with running_server(folder) as server:
            yield server
            server.close_clients()


def train(client: tinker.TrainingClient, before_step: Callable[[int], Any] = lambda step: None) -> float:
    """Two calls accumulate before each step, and the step is sent before they end, as recipes do."""
    for number in range(STEPS):
        client.forward_backward([supervised(start=5 + number)], "cross_entropy").result(timeout=120)
        before_step(number)
        backward = client.forward_backward([supervised(20, start=50 + number)] * 8, "cross_entropy")
        optim = client.optim_step(ADAM)
        backward.result(timeout=120)
        optim.result(timeout=120)
    return loss(client)


@pytest.fixture(scope="module")
def undisturbed(breakable: ServerProcess) -> float:
    return train(training_client(breakable.client_for()))


@contextlib.contextmanager
def later(delay_s: float, do: Callable[[], Any]) -> Iterator[None]:
    """Do it from another thread, meanwhile."""
    timer = threading.Timer(delay_s, do)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def test_the_server_is_killed_between_calls(breakable: ServerProcess, undisturbed: float) -> None:
    """Gradients that waited are there again."""
    client = training_client(breakable.client_for())
    assert train(client, lambda step: breakable.restart() if step == 1 else None) == undisturbed


@pytest.mark.parametrize("delay_s", [0.0, 0.15])
def test_the_server_is_killed_within_a_call(breakable: ServerProcess, undisturbed: float, delay_s: float) -> None:
    client = training_client(breakable.client_for())
    with contextlib.ExitStack() as stack:
        found = train(client, lambda step: stack.enter_context(later(delay_s, breakable.restart)) if step == 1 else None)
    assert found == undisturbed


@pytest.mark.parametrize("delay_s", [None, 0.02])
def test_the_training_worker_is_killed(breakable: ServerProcess, undisturbed: float, delay_s: float | None) -> None:
    """None: between two calls."""
    client = training_client(breakable.client_for())

    def kill(step: int) -> None:
        trainer = breakable.workers()[1]
        if delay_s is None:
            trainer.send_signal(signal.SIGKILL)
            trainer.wait(120)
        else:
            stack.enter_context(later(delay_s, lambda: trainer.send_signal(signal.SIGKILL)))

    with contextlib.ExitStack() as stack:
        assert train(client, kill) == undisturbed


@pytest.mark.parametrize("rename", ["/steps/.tmp-000002", "/steps/.tmp-removed-000000", "/weights/.tmp-kept"])
def test_the_training_worker_dies_at_a_rename(breakable: ServerProcess, undisturbed: float, rename: str) -> None:
    """Before a step is recorded, after it was and before its answer, and within a save. (All points: test_crash_points.)"""
    client = training_client(breakable.client_for())
    order = breakable.folder / KILL_AT

    def arm(step: int) -> None:
        if step == 0:
            order.write_text(rename)

    assert train(client, arm) == undisturbed
    path = client.save_state("kept").result(timeout=120).path
    assert not order.exists()
    again = breakable.client_for().create_training_client_from_state_with_optimizer(path).result()
    assert loss(again) == undisturbed


def test_the_rollout_worker_is_killed_while_it_samples(breakable: ServerProcess) -> None:
    """The samples go on where they were, and are those of an undisturbed engine."""
    training_client(breakable.client_for())  # So that the workers can be told apart.
    client = breakable.client_for().create_sampling_client(base_model=ALIAS).result()
    params = types.SamplingParams(max_tokens=200, seed=5, stop=[])
    expected = client.sample(PROMPT, 8, params).result(timeout=120)
    future = client.sample(PROMPT, 8, params)
    scored = client.compute_logprobs(PROMPT)
    time.sleep(0.1)
    breakable.workers()[0].send_signal(signal.SIGKILL)
    found = future.result(timeout=120)
    assert [s.tokens for s in found.sequences] == [s.tokens for s in expected.sequences]
    assert len(scored.result(timeout=120)) == PROMPT.length


def test_samples_in_flight_are_sent_again_when_the_server_is_killed(breakable: ServerProcess) -> None:
    service = breakable.client_for()
    trained = training_client(service)
    of_adapter = trained.save_weights_and_get_sampling_client().result()
    client = service.create_sampling_client(base_model=ALIAS).result()
    known = of_adapter.compute_logprobs(PROMPT).result()
    params = types.SamplingParams(max_tokens=200, seed=5, stop=[])
    futures = [client.sample(PROMPT, 4, params) for _ in range(6)]
    time.sleep(0.2)
    breakable.restart()
    assert all(len(future.result(timeout=120).sequences) == 4 for future in futures)
    assert of_adapter.compute_logprobs(PROMPT).result(timeout=120) == known
    assert sampled(of_adapter)


def test_a_restarted_server_answers_what_it_answered_before(breakable: ServerProcess) -> None:
    """Results of calls are there; samples are 410, for their client sends them again; strangers' numbers are 404."""
    wire = Wire(breakable)
    model_id, sampler_id = wire.model(), wire.sampler()
    made = wire.optim_step(model_id, 1)[1]["request_id"]
    result = wire.result(made)
    sample = wire.sample(sampler_id)[1]["request_id"]
    late = wire.optim_step(model_id, 3)[1]["request_id"]
    breakable.restart()
    assert wire.result(made) == result
    assert wire.post("retrieve_future", request_id=sample)[0] == 410
    assert wire.post("retrieve_future", request_id=f"{model_id}:call:7")[0] == 404
    assert wire.optim_step(model_id, 1)[1]["request_id"] == made
    assert wire.optim_step(model_id, 1, 0.5)[0] == 422
    assert wire.forward_backward(model_id, 2)[0] == 200  # What waited for it runs now.
    assert wire.result(late)["metrics"]["grad_norm"] > 0
    assert wire.sample(sampler_id)[0] == 200


def test_a_batch_that_lacked_a_call_lacks_it_after_a_restart(breakable: ServerProcess) -> None:
    bad = datum([5], target_tokens=[999], weights=[1.0])
    wire = Wire(breakable)
    model_id, clean = wire.model(), wire.model()
    assert wire.forward_backward(model_id, 1)[0] == 200
    assert "error" in wire.result(wire.forward_backward(model_id, 2, bad)[1]["request_id"])
    breakable.restart()
    assert "error" in wire.result(wire.optim_step(model_id, 3)[1]["request_id"])
    breakable.restart()  # And what was discarded stays so.
    norms = []
    for name, first in ((model_id, 4), (clean, 1)):
        assert wire.forward_backward(name, first)[0] == 200
        norms.append(wire.result(wire.optim_step(name, first + 1)[1]["request_id"])["metrics"]["grad_norm"])
    assert norms[0] == norms[1]


def test_a_server_that_is_stopped_in_good_order_loses_nothing(breakable: ServerProcess, undisturbed: float) -> None:
    client = training_client(breakable.client_for())

    def stop_and_start() -> None:
        assert breakable.stop() == 0
        breakable.start()

    with contextlib.ExitStack() as stack:
        found = train(client, lambda step: stack.enter_context(later(0.05, stop_and_start)) if step == 1 else None)
    assert found == undisturbed
