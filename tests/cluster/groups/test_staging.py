"""Deployments that come to the device beside the call that runs: the same bits, and accounts that add up whatever fails."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.cluster.groups.messages import FromDeployment, Pass, Prefetch, Prefetched, RunCall, Switched
from plait.cluster.messages import ROLLOUT, TRAIN, Ready, ReleaseCaches
from plait.cluster.model_messages import CallDone
from plait.residency import canonical
from plait.residency.tier import Tier
from plait.types.errors import PlaitError
from tests.cluster.groups.hosts import DrivenHost, first_chunk, next_chunk
from tests.cluster.groups.shells import VALUES, ShellRoom
from tests.cluster.groups.test_group_host import footprint, opened, trained
from tests.cluster.models import backward
from tests.residency.conftest import MEMORY
from tests.residency.faults import Turn, fail, injected

TENSOR_BYTES = 4 * VALUES
NAMES = "abc"


@pytest.fixture(autouse=True, scope="module")
def _small_sizes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canonical, "OWN_CONTENT_BYTES", TENSOR_BYTES)
        yield


# ---- with models


def test_what_came_beside_a_call_needs_no_switch_and_has_the_bits_of_training_alone(tmp_path: Path) -> None:
    size = max(footprint(tmp_path, TRAIN, seed=seed) for seed in (0, 1))
    host = DrivenHost(tmp_path / "together", device_bytes=2 * size)
    for name, seed in (("a", 0), ("b", 1), ("c", 0)):
        assert isinstance(host.add(name, seed, (TRAIN,)), Ready)
        opened(host, name, f"m-{name}")
    order = ["a", "b", "c"] * 2
    results: dict[str, list[object]] = {name: [] for name in "abc"}
    host.bring("a", park=("b", "c"))
    for place, name in enumerate(order):
        host.said.clear()
        following = order[(place + 1) % len(order)]
        resident = [one for one, state in host.host.states.items() if state.is_resident]
        host.host.handle(Prefetch(following, tuple(one for one in resident if one not in (name, following))))
        host.host.handle(RunCall(f"{place}", name, backward(place + 1, model_id=f"m-{name}")))
        while host.host.has_work:
            host.host.work()
        host.host.settle()
        assert not any(isinstance(said, Switched) for said in host.said), "it had to be brought after all"
        assert [said.deployment for said in host.said if isinstance(said, Prefetched)] == [following]
        told = [said.message for said in host.said if isinstance(said, FromDeployment)]
        results[name] += [message.logprobs for message in told if isinstance(message, CallDone)]
    for name, seed in (("a", 0), ("b", 1), ("c", 0)):
        alone = DrivenHost(tmp_path / f"alone-{name}")
        alone.add(name, seed, (TRAIN,))
        opened(alone, name, f"m-{name}")
        assert results[name] == [alone.call(name, backward(n, model_id=f"m-{name}")).logprobs for n in (1, 2)]


def test_a_generation_goes_on_after_its_deployment_left_and_came_beside_others(tmp_path: Path) -> None:
    undisturbed = DrivenHost(tmp_path / "alone")
    undisturbed.add("a", roles=(ROLLOUT,))
    first = first_chunk("r1")
    (expected_1,) = undisturbed.sample("a", first)
    (expected_2,) = undisturbed.sample("a", next_chunk(first, expected_1, "r2"))
    host = DrivenHost(tmp_path, device_bytes=2 * footprint(tmp_path, ROLLOUT))
    for name in "abc":
        host.add(name, roles=(ROLLOUT,))
    host.bring("a", park=("c",))
    (result_1,) = host.sample("a", first)
    host.bring("c")
    host.prefetch("b", "a")
    host.prefetch("a", "b")
    (result_2,) = host.sample("a", next_chunk(first, result_1, "r2"))
    assert (result_2.tokens, result_2.logprobs) == (expected_2.tokens, expected_2.logprobs)
    assert result_2.cached_tokens == expected_2.cached_tokens


def test_what_is_told_to_a_deployment_on_its_way_is_heard_when_it_is_there(tmp_path: Path) -> None:
    host = DrivenHost(tmp_path, device_bytes=2 * footprint(tmp_path, ROLLOUT))
    host.add("a", roles=(ROLLOUT,))
    host.add("b", roles=(ROLLOUT,))
    (result,) = host.sample("a", first_chunk("r1"))
    host.bring("b", park=("a",))
    host.host.handle(Prefetch("a", ()))
    host.host.handle(Pass("a", ReleaseCaches((result.cache_handle,))))
    host.check()
    (again,) = host.sample("a", next_chunk(first_chunk("r1"), result, "r2"))
    assert again.cached_tokens < result.cached_tokens + len(result.tokens) + 40


def test_where_there_is_no_room_beside_what_runs_all_stays_as_it_is(tmp_path: Path) -> None:
    host = DrivenHost(tmp_path, device_bytes=footprint(tmp_path, TRAIN))
    for name in "ab":
        host.add(name, roles=(TRAIN,))
    used = host.memory.used_bytes()
    host.prefetch("a")
    assert [name for name, state in host.host.states.items() if state.is_resident] == ["b"]
    assert host.memory.used_bytes() == used
    assert trained(host, ("b", "a"))


# ---- without models, with every step failing

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["switch", "step", "step", "stage", "stage", "settle", "fit"]), st.sampled_from(NAMES), st.booleans()
    ),
    min_size=4,
    max_size=16,
)
ALONE_BYTES = (3 + 1 + 3) * TENSOR_BYTES
"""Of one on the device: weights, room for laying them out, what is trained."""


def act(room: ShellRoom, current: str | None, action: str, name: str, everybody: bool) -> str | None:
    """Which deployment runs then."""
    states = room.room.states
    match action:
        case "switch":
            return name if room.room.switch((), name).problem is None else None
        case "step" if current is not None:
            room.step(current)
        case "stage":
            leaving = [one for one in states if one not in (current, name)] if everybody else []
            room.room.stage(name, leaving, lambda state: state.deployment == current)
        case "settle":
            room.room.settle()
        case "fit" if current is not None:
            room.room.fit(states[current], TENSOR_BYTES)
    return current


def tried(room: ShellRoom, current: str | None, action: str, name: str, everybody: bool) -> str | None:
    try:
        return act(room, current, action, name, everybody)
    except PlaitError:
        return current if current is not None and room.room.states[current].is_resident else None


def in_use_is_there(room: ShellRoom, current: str | None) -> None:
    if current is not None:
        state = room.room.states[current]
        assert state.is_resident
        for group in (f"{state.base}/embed_tokens", *state.kept_groups):
            assert room.memory._ledger.is_resident(group, Tier.DEVICE), group


@settings(max_examples=40, deadline=None)
@given(
    actions=ACTIONS,
    device=st.sampled_from([ALONE_BYTES, 2 * ALONE_BYTES - TENSOR_BYTES, 2 * ALONE_BYTES]),
    host=st.sampled_from([0, 5 * TENSOR_BYTES, 100 * TENSOR_BYTES]),
    failing=st.integers(1, 60),
)
def test_whatever_fails_accounts_add_up_and_nothing_is_lost(
    actions: list[tuple[str, str, bool]], device: int, host: int, failing: int
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        room = ShellRoom(Path(folder), NAMES, device_bytes=device, host_bytes=host, disk_bytes=100 * TENSOR_BYTES)
        turn, current = Turn(failing, fail), None
        with injected(turn):
            for action, name, everybody in actions:
                current = tried(room, current, action, name, everybody)
                in_use_is_there(room, current)
            try:
                room.room.settle()
            except PlaitError:
                assert turn.happened
            room.memory.flush()
        room.check()
        room.check_contents()
        room.memory.close()


def test_without_any_place_below_what_is_to_leave_stays(tmp_path: Path) -> None:
    room = ShellRoom(tmp_path, "ab", device_bytes=2 * ALONE_BYTES, host_bytes=4 * TENSOR_BYTES)
    assert room.room.switch((), "a").problem is None
    room.step("a")
    for _ in range(2):
        room.room.stage("b", ["a"], lambda state: False)
        room.room.settle()
        room.check()
    room.check_contents()
