"""Deployments that take turns on a device for one of them: the same bits as alone, and accounts that add up."""

from pathlib import Path

import pytest

from plait.cluster.groups.messages import CallOver, FromDeployment, Prefetch, RunCall, Switched
from plait.cluster.messages import ROLLOUT, TRAIN, Ready, StartFailed, Starting
from plait.cluster.model_messages import CallDone, CallFailed, CloseModel, ModelOpened, OpenModel
from plait.cluster.rollout_role import RolloutRole
from plait.residency.tier import Tier
from plait.types.policy import Training
from tests.cluster.groups.hosts import DrivenHost, first_chunk, next_chunk
from tests.cluster.models import LORA, backward, rows, step

LARGE = 5
"""Seed of a base whose tensors are contents of their own."""


def opened(host: DrivenHost, deployment: str, model: str, training: Training = "lora") -> ModelOpened:
    folder = host.folder / "models" / deployment / model
    answer = host.call(deployment, OpenModel(model, "local", LORA, str(folder), training=training))
    assert isinstance(answer, ModelOpened), answer
    return answer


def trained(host: DrivenHost, deployments: tuple[str, ...], training: Training = "lora") -> dict[str, list[object]]:
    """Two steps of a model of each, call by call in turn; gradients wait while the others run."""
    results: dict[str, list[object]] = {name: [] for name in deployments}
    for name in deployments:
        opened(host, name, f"m-{name}", training)
    for number in range(2):
        for name in deployments:
            done = host.call(name, backward(3 * number + 1, model_id=f"m-{name}"))
            assert isinstance(done, CallDone), done
            results[name].append(rows(done))
        for name in deployments:
            done = host.call(name, step(3 * number + 2, model_id=f"m-{name}"))
            results[name] += [done.ref.digest, done.metrics]
    return results


def footprint(folder: Path, *roles: str, seed: int = 0, training: Training = "lora") -> int:
    """Of a deployment alone, with a model open if it trains."""
    host = DrivenHost(folder / f"measured-{seed}")
    assert isinstance(host.add("x", seed, roles), Ready)
    if TRAIN in roles:
        opened(host, "x", "m", training)
    size = host.host.states["x"].num_bytes
    host.remove("x")
    host.memory.close()
    return size


def test_training_by_turns_has_the_bits_of_training_alone(tmp_path: Path) -> None:
    size = max(footprint(tmp_path, TRAIN, seed=seed) for seed in (0, 1))
    host = DrivenHost(tmp_path / "together", device_bytes=size)
    for name, seed in (("a", 0), ("b", 1), ("c", 0)):
        assert isinstance(host.add(name, seed, (TRAIN,)), Ready)
    together = trained(host, ("a", "b", "c"))
    for name, seed in (("a", 0), ("b", 1), ("c", 0)):
        alone = DrivenHost(tmp_path / f"alone-{name}")
        alone.add(name, seed, (TRAIN,))
        assert trained(alone, (name,))[name] == together[name]
    for name in ("a", "b", "c"):
        host.remove(name)
    assert host.memory.names() == [], "something is kept of those that left"
    assert host.memory.used_bytes() == dict.fromkeys(Tier, 0)


def test_weights_that_are_trained_as_a_whole_need_no_more_room_for_being_shared_at_first(tmp_path: Path) -> None:
    """Jobs on one base begin with equal weights and with moments of zero, which are stored once until somebody trains."""
    size = footprint(tmp_path, TRAIN, seed=LARGE, training="full")
    host = DrivenHost(tmp_path / "together", device_bytes=size)
    alone = DrivenHost(tmp_path / "alone")
    for name in ("a", "b"):
        assert isinstance(host.add(name, LARGE, (TRAIN,)), Ready)
        alone.add(name, LARGE, (TRAIN,))
    together = trained(host, ("a", "b"), "full")
    assert together == {name: trained(alone, (name,), "full")[name] for name in ("a", "b")}


def test_what_a_deployment_does_until_it_is_up_is_told_at_once(tmp_path: Path) -> None:
    host = DrivenHost(tmp_path)
    assert isinstance(host.add("a"), Ready)
    said = [frame.message for frame in host.said if isinstance(frame, FromDeployment)]
    assert [message.what for message in said if isinstance(message, Starting)] == [
        "loading the model",
        "laying the weights out",
        "",
    ]
    assert isinstance(said[-1], Ready)
    host.remove("a")


def test_a_parked_deployment_holds_nothing_on_the_device(tmp_path: Path) -> None:
    host = DrivenHost(tmp_path, device_bytes=footprint(tmp_path, ROLLOUT, TRAIN))
    host.add("a")
    host.add("b")
    worker = host.host.states["a"].worker
    assert isinstance(worker.rollout, RolloutRole)
    assert not host.host.states["a"].is_resident
    assert [decoder.num_bytes for decoder in worker.decoders] == [0, 0]
    engine = worker.rollout.engine
    assert {engine.slots.data.device.type, engine.kv.storage.data.device.type} == {"meta"}
    host.bring("a")
    assert engine.slots.data.device.type == "cpu"
    assert not host.host.states["b"].is_resident


def test_what_fits_together_needs_no_switch(tmp_path: Path) -> None:
    host = DrivenHost(tmp_path, device_bytes=2 * footprint(tmp_path, TRAIN) + 1)
    host.add("a", roles=(TRAIN,))
    host.add("b", roles=(TRAIN,))
    host.bring("a")
    trained(host, ("a", "b"))
    assert all(state.is_resident for state in host.host.states.values())


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_generation_goes_on_with_the_same_tokens_after_others_had_the_device(tmp_path: Path, is_lost: bool) -> None:
    """With its cache, or without if that is lost."""
    undisturbed = DrivenHost(tmp_path / "alone")
    undisturbed.add("a", roles=(ROLLOUT,))
    first = first_chunk("r1")
    (expected_1,) = undisturbed.sample("a", first)
    (expected_2,) = undisturbed.sample("a", next_chunk(first, expected_1, "r2"))
    host = DrivenHost(tmp_path, device_bytes=footprint(tmp_path, ROLLOUT))
    host.add("a", roles=(ROLLOUT,))
    host.add("b", roles=(ROLLOUT,))
    (result_1,) = host.sample("a", first)
    host.sample("b", first_chunk("other", seed=9))
    if is_lost:
        assert host.memory.lose_oldest_cache()
    (result_2,) = host.sample("a", next_chunk(first, result_1, "r2"))
    assert (result_1.tokens, result_1.logprobs) == (expected_1.tokens, expected_1.logprobs)
    assert (result_2.tokens, result_2.logprobs) == (expected_2.tokens, expected_2.logprobs)
    assert result_2.cached_tokens == (0 if is_lost else expected_2.cached_tokens)


def test_a_model_for_which_there_is_no_room_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    host = DrivenHost(tmp_path, device_bytes=footprint(tmp_path, TRAIN))
    host.add("a", roles=(TRAIN,))
    opened(host, "a", "m-a")
    refused = host.call("a", OpenModel("other", "local", LORA, str(tmp_path / "other")))
    assert isinstance(refused, CallFailed)
    assert "workers.device_bytes" in refused.error
    assert isinstance(host.call("a", backward(1, model_id="m-a")), CallDone)
    host.call("a", CloseModel("m-a"))
    opened(host, "a", "other")


def test_all_weights_are_refused_where_an_adapter_fits(tmp_path: Path) -> None:
    size = footprint(tmp_path, TRAIN, training="full")
    for number, device_bytes in enumerate((size - 1, size)):
        host = DrivenHost(tmp_path / f"{number}", device_bytes=device_bytes)
        host.add("a", roles=(TRAIN,))
        answer = host.call("a", OpenModel("m", "local", LORA, str(tmp_path / f"m-{number}"), training="full"))
        assert isinstance(answer, ModelOpened if device_bytes == size else CallFailed), answer
        assert host.host.states["a"].num_bytes <= device_bytes


def test_a_deployment_that_does_not_fit_alone_is_refused(tmp_path: Path) -> None:
    host = DrivenHost(tmp_path, device_bytes=footprint(tmp_path, ROLLOUT) - 1)
    refused = host.add("a", roles=(ROLLOUT,))
    assert isinstance(refused, StartFailed)
    assert "workers.device_bytes" in refused.message
    assert host.memory.used_bytes()[Tier.DEVICE] <= host.memory.device_bytes


def test_models_that_are_closed_while_they_are_away_leave_nothing(tmp_path: Path) -> None:
    host = DrivenHost(tmp_path, device_bytes=footprint(tmp_path, TRAIN))
    host.add("a", roles=(TRAIN,))
    opened(host, "a", "m")
    host.call("a", backward(1, model_id="m"))
    host.add("b", roles=(TRAIN,))
    assert [name for name in host.memory.names() if name.startswith("a/")] == ["a/model/m", "a/model/m/gradients"]
    host.host.states["a"].worker.handle(CloseModel("m"))
    host.bring("a")
    assert not [name for name in host.memory.names() if name.startswith("a/")]
    opened(host, "a", "m")
    assert isinstance(host.call("a", backward(1, model_id="m")), CallDone)


def test_who_left_unasked_comes_back_for_its_call(tmp_path: Path) -> None:
    """As after adapters of rollouts needed its room."""
    host = DrivenHost(tmp_path)
    host.add("a", roles=(TRAIN,))
    opened(host, "a", "m")
    host.host.states["a"].park()
    host.said.clear()
    host.host.handle(RunCall("call", "a", backward(1, model_id="m")))
    while host.host.has_work:
        host.host.work()
    kinds = [type(frame) for frame in host.said]
    assert kinds[0] is Switched
    assert kinds[-1] is CallOver
    assert any(isinstance(frame, FromDeployment) and isinstance(frame.message, CallDone) for frame in host.said)


def test_what_is_on_disk_is_lifted_into_main_memory_ahead_of_its_turn(tmp_path: Path) -> None:
    host = DrivenHost(tmp_path, device_bytes=footprint(tmp_path, TRAIN), disk_bytes=1 << 30)
    host.add("a", roles=(TRAIN,))
    opened(host, "a", "m")
    host.add("b", roles=(TRAIN,))
    state = host.host.states["a"]
    for name in state.groups:
        host.memory.offload(name, Tier.DISK)
    host.memory.flush()
    assert host.memory.tier("a/model/m") == Tier.DISK
    host.host.handle(Prefetch("a"))
    host.memory.flush()
    assert host.memory.tier("a/model/m") == Tier.HOST
