"""Where there is no room, the call fails, says which settings are too small, and nothing else is concerned."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from plait.cluster.groups.device_state import DeviceState
from plait.cluster.groups.group_memory import GroupMemory
from plait.cluster.groups.messages import FromDeployment, Pass, RunCall
from plait.cluster.groups.openings import version_bytes
from plait.cluster.messages import ROLLOUT, TRAIN, ChunksDone, Ready, StartFailed, SubmitChunks
from plait.cluster.model_messages import CallDone, CallFailed, DiscardGradients, ModelOpened, OpenModel
from plait.cluster.worker import Worker
from plait.residency import content_file
from plait.residency.tier import Tier
from plait.types.errors import CapacityError, PlaitError, StateError
from plait.types.policy import Training
from plait.types.sampling import StopReason
from tests.cluster.groups.hosts import DrivenHost, first_chunk, next_chunk
from tests.cluster.groups.test_full_models import chunk, open_full
from tests.cluster.groups.test_group_host import LARGE, footprint, opened, trained
from tests.cluster.models import LORA, backward, data, rows, step


@contextmanager
def full_memory() -> Iterator[None]:
    """The system has no room for anything more."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "injected")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content_file, "_write_all", refuse)
        yield


def two_of(folder: Path, *roles: str, training: Training = "lora", **budgets: Any) -> DrivenHost:
    """Room for one of them on the device, with a model of this kind."""
    size = max(footprint(folder, *roles, seed=seed, training=training) for seed in (0, 1))
    host = DrivenHost(folder / "together", device_bytes=size, **budgets)
    for seed, name in enumerate("ab"):
        assert isinstance(host.add(name, seed, roles), Ready)
    return host


def test_a_base_that_finds_no_place_below_is_refused_at_its_start(tmp_path: Path) -> None:
    size = max(footprint(tmp_path, TRAIN, seed=seed) for seed in (0, 1))
    measured = DrivenHost(tmp_path / "measured")
    measured.add("a", 0, (TRAIN,))
    base_bytes = measured.memory.base_bytes(measured.host.states["a"].base)
    host = DrivenHost(tmp_path / "together", device_bytes=size, host_bytes=base_bytes)
    assert isinstance(host.add("a", 0, (TRAIN,)), Ready)
    opened(host, "a", "m")
    refused = host.add("b", 1, (TRAIN,))
    assert isinstance(refused, StartFailed)
    assert f"workers.host_bytes is {base_bytes}, workers.disk_bytes is 0" in refused.message
    assert list(host.host.states) == ["a"]
    assert isinstance(host.call("a", backward(1, model_id="m")), CallDone)


@pytest.mark.parametrize("error", [CapacityError("it is full"), StateError("it cannot be read")])
def test_what_is_refused_at_its_start_leaves_nothing_behind(tmp_path: Path, error: PlaitError) -> None:
    host = DrivenHost(tmp_path)
    host.add("a", 0, (TRAIN,))
    groups, closed = host.memory.names(), list[Worker]()

    def refuse(state: DeviceState) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host.host, "_check_fits", refuse)
        patch.setattr(Worker, "close", lambda worker: closed.append(worker))
        assert isinstance(host.add("b", 1, (TRAIN,)), StartFailed)
    assert len(closed) == 1, "with the cache that it shares, and the folders that it holds"
    assert host.memory.names() == groups
    assert isinstance(host.add("b", 1, (TRAIN,)), Ready)


def test_a_model_that_would_find_no_place_below_is_refused_and_fits_with_a_disk(tmp_path: Path) -> None:
    measured = DrivenHost(tmp_path / "measured")
    size = max(footprint(tmp_path, TRAIN, seed=seed, training="full") for seed in (0, 1))
    bases = 0
    for seed, name in enumerate("ab"):
        measured.add(name, seed, (TRAIN,))
        bases += measured.memory.base_bytes(measured.host.states[name].base)
    for disk_bytes in (0, 8 * size):
        host = DrivenHost(tmp_path / f"disk-{disk_bytes}", device_bytes=size, host_bytes=bases + 1000, disk_bytes=disk_bytes)
        for seed, name in enumerate("ab"):
            assert isinstance(host.add(name, seed, (TRAIN,)), Ready)
        answers = [open_full(host, name) for name in "ab"]
        if disk_bytes:
            assert [type(answer) for answer in answers] == [ModelOpened, ModelOpened]
            assert host.memory.tier("a/model/m") is Tier.DISK
        else:
            refused = next(answer for answer in answers if isinstance(answer, CallFailed))
            assert f"workers.host_bytes is {bases + 1000}, workers.disk_bytes is 0" in refused.error


def test_training_over_the_disk_has_the_bits_of_training_alone(tmp_path: Path) -> None:
    host = two_of(tmp_path, TRAIN, host_bytes=1, disk_bytes=1 << 30)
    together = trained(host, ("a", "b"))
    alone = DrivenHost(tmp_path / "alone")
    for seed, name in enumerate("ab"):
        alone.add(name, seed, (TRAIN,))
    assert together == {name: trained(alone, (name,))[name] for name in "ab"}


def test_a_call_for_which_nobody_can_leave_fails_and_the_next_one_goes_on(tmp_path: Path) -> None:
    host = two_of(tmp_path, TRAIN)
    for name in "ab":
        opened(host, name, "m")
    host.bring("a")
    assert isinstance(host.call("a", backward(1, model_id="m")), CallDone)
    with full_memory():
        failed = host.call("b", backward(1, model_id="m"))
        assert isinstance(failed, CallFailed)
        assert "b cannot come onto the device" in failed.error
        assert "workers.device_bytes" in failed.error
        assert isinstance(step_of(host, "a"), CallDone), "the other goes on"
    alone = DrivenHost(tmp_path / "alone")
    alone.add("b", 1, (TRAIN,))
    opened(alone, "b", "m")
    done, expected = (one.call("b", backward(1, model_id="m")) for one in (host, alone))
    assert rows(done) == rows(expected)
    assert step_of(host, "b").ref.digest == step_of(alone, "b").ref.digest


def step_of(host: DrivenHost, deployment: str) -> Any:
    return host.call(deployment, step(2, model_id="m"))


def test_chunks_and_prompts_for_which_nobody_can_leave_fail_alone(tmp_path: Path) -> None:
    host = two_of(tmp_path, ROLLOUT, TRAIN, training="full")
    for name in "ab":
        opened(host, name, "m", "full")
    first = first_chunk("r1")
    (result,) = host.sample("b", first)
    host.bring("a")
    host.call("a", backward(1, model_id="m"))
    with full_memory():
        host.said.clear()
        host.host.handle(Pass("b", SubmitChunks((next_chunk(first, result, "r2"),))))
        (failed,) = [said.message for said in host.said if isinstance(said, FromDeployment)]
    assert isinstance(failed, ChunksDone)
    assert [one.stop for one in failed.results] == [StopReason.FAILED]
    assert "workers.device_bytes" in failed.results[0].error
    (again,) = host.sample("b", next_chunk(first, result, "r2"))
    alone = DrivenHost(tmp_path / "alone")
    alone.add("b", 1, (ROLLOUT,))
    (expected,) = alone.sample("b", next_chunk(first, result, "r2"))
    assert again.tokens == expected.tokens


def test_gradients_are_discarded_wherever_they_are(tmp_path: Path) -> None:
    host = two_of(tmp_path, TRAIN)
    opened(host, "a", "m")
    host.call("a", backward(1, model_id="m"))
    host.bring("b")
    assert "a/model/m/gradients" in host.memory.names()
    host.host.handle(RunCall("call", "a", DiscardGradients("m")))
    while host.host.has_work:
        host.host.work()
    assert "a/model/m/gradients" not in host.memory.names()
    host.call("a", backward(2, data()[:1], model_id="m"))
    stepped = host.call("a", step(3, model_id="m"))
    alone = DrivenHost(tmp_path / "alone")
    alone.add("a", 0, (TRAIN,))
    opened(alone, "a", "m")
    alone.call("a", backward(2, data()[:1], model_id="m"))
    assert stepped.ref.digest == alone.call("a", step(3, model_id="m")).ref.digest


@pytest.mark.parametrize("number", [1, 2, 3])
def test_who_cannot_put_away_what_it_has_stays_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """At the first group, and after others were put away."""
    host = DrivenHost(tmp_path / "host")
    host.add("a", LARGE, (TRAIN,))
    for model in ("m", "n"):
        opened(host, "a", model, "full")
        host.call("a", backward(1, model_id=model))
    store, calls = GroupMemory._store, list[str]()

    def failing(memory: GroupMemory, name: str, tensors: Any) -> None:
        calls.append(name)
        if len(calls) == number:
            raise CapacityError("injected")
        store(memory, name, tensors)

    state = host.host.states["a"]
    with monkeypatch.context() as patch:
        patch.setattr(GroupMemory, "_store", failing)
        with pytest.raises(CapacityError, match="injected"):
            state.park()
    assert state.is_resident
    assert state.kept_groups == []
    alone = DrivenHost(tmp_path / "alone")
    alone.add("a", LARGE, (TRAIN,))
    for model in ("m", "n"):
        opened(alone, "a", model, "full")
        alone.call("a", backward(1, model_id=model))
        done, expected = (one.call("a", step(2, model_id=model)) for one in (host, alone))
        assert done.ref.digest == expected.ref.digest


def test_versions_of_full_models_take_turns_where_there_is_room_for_one(tmp_path: Path) -> None:
    measured = DrivenHost(tmp_path / "measured")
    measured.add("a", LARGE)
    before_bytes = measured.host.states["a"].num_bytes
    refs = {}
    for number, model in enumerate("lmn"):
        opened(measured, "a", model, "full")
        measured.call("a", backward(1, model_id=model))
        refs[number] = measured.call("a", step(2, model_id=model, learning_rate=0.1 * number)).ref
    one_bytes = version_bytes(refs[0], measured.host.states["a"].worker.decoders[0].config, 4, is_host=True)
    expected = {n: measured.sample("a", chunk(ref, n))[0] for n, ref in refs.items()}
    assert all(one.tokens for one in expected.values())
    host = DrivenHost(tmp_path / "host", device_bytes=before_bytes + one_bytes)
    host.add("a", LARGE)
    results = {one.request_id: one for one in host.sample("a", *[chunk(ref, n) for n, ref in refs.items()])}
    for number in refs:
        assert results[f"r{number}"].tokens == expected[number].tokens, results[f"r{number}"].error
    small = DrivenHost(tmp_path / "small", device_bytes=before_bytes + one_bytes - 1)
    small.add("a", LARGE)
    (refused,) = small.sample("a", chunk(refs[0], 0))
    assert refused.stop is StopReason.FAILED
    assert "workers.device_bytes" in refused.error
    assert small.sample("a", first_chunk("base"))[0].tokens


def test_a_refused_opening_changes_nothing(tmp_path: Path) -> None:
    host = DrivenHost(tmp_path / "host", device_bytes=footprint(tmp_path, TRAIN))
    host.add("a", 0, (TRAIN,))
    before = host.host.states["a"].num_bytes
    refused = host.call("a", OpenModel("m", "local", LORA, str(tmp_path / "m"), training="full"))
    assert isinstance(refused, CallFailed)
    assert host.host.states["a"].num_bytes == before
