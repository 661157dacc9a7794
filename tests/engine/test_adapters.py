"""Which versions stay in memory, and that it never changes what a request gets."""

import random
from collections.abc import Callable

import pytest
import torch

from plait.engine.adapters import AdapterStore
from plait.lora.mix import FusedAdapter
from plait.types.errors import AdapterError, CapacityError, StateError
from plait.types.policy import AdapterRef
from tests.engine.test_own_models import own
from tests.engine.tiny import LORAS, adapter_tensors, load_from, model, ref_of


def make_store(window: int = 2) -> AdapterStore:
    return AdapterStore(load_from(model()), window)


def test_references_and_window() -> None:
    store = make_store(window=1)
    refs = [ref_of(f"t{i}") for i in range(3)]
    first = store.acquire(refs[0])
    assert store.acquire(refs[0]) is first
    for ref in refs[1:]:
        store.acquire(ref)
    assert store.num_references == 4
    store.release(refs[0])
    assert refs[0].policy in store.resident, "one reference is left"
    store.release(refs[0])
    store.release(refs[1])
    assert store.resident == (refs[1].policy, refs[2].policy), "the window keeps the latest one used"
    assert store.acquire(refs[0]) is first
    assert store.num_loads == 4, "evicted, so read again"


def test_random_use_is_never_refused_and_bounded() -> None:
    """P07."""
    store, rng = make_store(window=2), random.Random(0)
    held: list[AdapterRef] = []
    for _ in range(500):
        if held and rng.random() < 0.5:
            store.release(held.pop(rng.randrange(len(held))))
        else:
            held.append(ref_of(f"t{rng.randrange(8)}"))
            assert store.acquire(held[-1]) is load_from(model())(held[-1])
        in_use = {ref.policy for ref in held}
        assert in_use <= set(store.resident)
        assert len(store.resident) <= len(in_use) + 2
        assert store.num_references == len(held)


def test_same_version_of_another_task_made_anew() -> None:
    """P02: a task deleted and made again under its name has the same versions with other weights."""
    loaded: list[str] = []

    def load(ref: AdapterRef) -> FusedAdapter:
        loaded.append(ref.digest)
        return FusedAdapter(LORAS[0], adapter_tensors(model().config, LORAS[0], len(loaded)), model().config, torch.float32)

    store = AdapterStore(load, 4)
    old = AdapterRef(ref_of("t0").policy, "/old", "one")
    new = AdapterRef(ref_of("t0").policy, "/new", "two")
    assert store.acquire(old) is not store.acquire(new)
    assert loaded == ["one", "two"]
    assert store.acquire(old) is store.acquire(old)


def fail_with(error: Exception) -> Callable[[AdapterRef], FusedAdapter]:
    def load(ref: AdapterRef) -> FusedAdapter:
        raise error

    return load


@pytest.mark.parametrize("error", [FileNotFoundError("no such file"), ValueError("not JSON")])
def test_unreadable_file(error: Exception) -> None:
    store = AdapterStore(fail_with(error), 2)
    with pytest.raises(AdapterError, match=f"adapter local/t0@1 at '/t0/1' cannot be read: {error}"):
        store.acquire(ref_of("t0"))
    assert store.resident == ()


def test_errors_that_explain_themselves_pass() -> None:
    with pytest.raises(StateError, match="is damaged"):
        AdapterStore(fail_with(StateError("x is damaged.")), 2).acquire(ref_of("t0"))


def test_a_version_without_room_is_refused_and_comes_when_there_is() -> None:
    store, has_room = make_store(), [False]
    asked: list[AdapterRef] = []
    store.claim = lambda ref: asked.append(ref) or has_room[0]  # type: ignore[func-returns-value]
    ref = ref_of("t0")
    assert store.has_place(ref), "an adapter does not wait"
    with pytest.raises(CapacityError, match=r"workers\.device_bytes"):
        store.acquire(ref)
    assert (store.num_loads, store.resident, asked) == (0, (), [ref])
    has_room[0] = True
    assert store.acquire(ref) is store.acquire(ref)
    assert len(asked) == 2, "what is there asks for nothing"


def test_a_model_waits_for_room_as_long_as_another_is_in_use() -> None:
    has_room = [True]
    store = AdapterStore(lambda ref: own("f1", 1)[True], 2, is_model=lambda ref: True, max_models=2)
    store.claim = lambda ref: has_room[0]
    first, second = ref_of("t0"), ref_of("t1")
    store.acquire(first)
    has_room[0] = False
    assert not store.has_place(second)
    assert store.has_place(first)
    store.release(first)
    assert store.has_place(second), "waiting would help nobody"
    with pytest.raises(CapacityError):
        store.acquire(second)
