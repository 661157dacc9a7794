"""Messages to several trainers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.cluster.messages import (
    AdapterClosed,
    CloseTask,
    JobFailed,
    SetTenantWeight,
    TaskOpened,
    Update,
)
from plait.cluster.model_messages import (
    OPENING,
    CallDone,
    CallFailed,
    CloseModel,
    DiscardGradients,
    ForwardBackward,
    ModelOpened,
    OpenModel,
    OptimStep,
)
from plait.cluster.trainer_router import TrainerRouter
from plait.types.datum import Datum
from plait.types.lora import LoraConfig
from tests.cluster.trainer_world import World, opening, ref, update

LORA = LoraConfig(4, 8.0, ("q_proj",), 0)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from("abcd"), st.sampled_from((1, 200, 900))),
        st.tuples(st.just("work"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("kill"), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("back"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(ACTIONS)
def test_each_update_is_trained_once_at_one_trainer_whatever_is_lost(actions: list[tuple[str, Any, Any]]) -> None:
    world, down = World(3), list[str]()
    for action, what, more in actions:
        if action == "ask":
            world.ask(what, more)
        elif action == "work":
            for _ in range(more):
                world.work(world.names[what])
        elif action == "kill" and world.names[what] not in down:
            down.append(world.names[what])
            world.kill(world.names[what])
        elif action == "back" and down:
            world.router.up(down.pop())
    for trainer in down:
        world.router.up(trainer)
    world.finish()
    assert world.waiting == {}
    assert world.told == world.disk
    assert sorted(world.trained) == [(task, step) for task in sorted(world.told) for step in range(1, world.told[task] + 1)]
    assert world.is_idle[-1:] in ([], [True])


def test_updates_of_different_tasks_are_at_different_trainers_and_a_busy_one_is_left() -> None:
    world = World(2)
    for task in "abc":
        world.ask(task, 500)
    world.finish()
    homes = {task: world.router.placement.home(task) for task in "abc"}
    assert homes == {"a": "train-0", "b": "train-1", "c": "train-0"}
    world.ask("a", 500)
    world.ask("c", 500)  # Its trainer is busy, the other is not.
    assert world.router.placement.home("c") == "train-1"
    sent = [type(message) for message in world.inboxes["train-0"]]
    assert sent == [Update, CloseTask]
    assert not world.inboxes["train-1"], "it is not opened there before it is closed here"
    opened_before = sum(isinstance(message, TaskOpened) for message in world.messages)
    world.finish()
    assert sum(isinstance(message, TaskOpened) for message in world.messages) == opened_before, "nobody asked for the move"
    assert world.told == {"a": 2, "b": 1, "c": 2}


def test_a_move_goes_on_when_the_old_trainer_is_lost() -> None:
    world = World(2)
    for task in "abc":
        world.ask(task, 500)
    world.finish()
    world.ask("a", 500)
    world.ask("c", 500)
    world.kill("train-0")
    assert world.lost == ["a"]
    world.finish()
    assert world.told == {"a": 2, "b": 1, "c": 2}


def models(num_trainers: int = 2) -> tuple[TrainerRouter, dict[str, list[Any]]]:
    sent: dict[str, list[Any]] = {f"train-{n}": [] for n in range(num_trainers)}
    ignore = [lambda _: None] * 3
    router = TrainerRouter(list(sent), lambda name, message: sent[name].append(message), *ignore)
    for number in range(3):
        name = f"m{number}"
        router.send(OpenModel(name, "ana", LORA, f"folder/{name}"))
        router.heard(f"train-{number % 2}", ModelOpened(name, ref(name, 0), 0))
    for messages in sent.values():
        messages.clear()
    return router, sent


def backward(model_id: str, seq_id: int, size: int = 500) -> ForwardBackward:
    return ForwardBackward(model_id, seq_id, (Datum((1,) * size, (1,) * size),), "{}")


def test_a_model_with_gradients_on_the_device_does_not_move() -> None:
    router, sent = models()
    router.send(backward("m2", 1))
    router.heard("train-0", CallDone("m2", 1, ref("m2", 0)))
    router.send(backward("m0", 1))
    router.send(backward("m2", 2))
    assert [message.model_id for message in sent["train-0"]] == ["m2", "m0", "m2"]
    router.heard("train-0", CallDone("m2", 2, ref("m2", 0)))
    router.send(OptimStep("m2", 3, "{}"))
    router.heard("train-0", CallDone("m2", 3, ref("m2", 1)))
    router.send(backward("m2", 4))
    assert isinstance(sent["train-0"][-1], CloseModel)
    assert not sent["train-1"]
    assert router.heard("train-0", AdapterClosed("m2")) is None
    assert [type(message) for message in sent["train-1"]] == [OpenModel, ForwardBackward]
    assert router.heard("train-1", ModelOpened("m2", ref("m2", 1), 3)) is None


@pytest.mark.parametrize("is_discarded", [False, True])
def test_discarded_gradients_hold_nothing_back(is_discarded: bool) -> None:
    router, sent = models()
    router.send(backward("m2", 1))
    router.heard("train-0", CallFailed("m2", 1, "no", True))
    if is_discarded:
        router.send(DiscardGradients("m2"))
    router.send(backward("m0", 1))
    router.send(backward("m2", 2))
    assert isinstance(sent["train-0"][-1], CloseModel) is is_discarded


def test_a_call_whose_model_cannot_be_opened_elsewhere_fails_with_the_reason() -> None:
    router, _ = models()
    router.send(backward("m0", 1))
    router.send(backward("m2", 1))
    router.heard("train-0", AdapterClosed("m2"))
    assert router.heard("train-1", CallFailed("m2", OPENING, "the disk is gone", False)) is None
    failed = router.heard("train-1", CallFailed("m2", 1, "model 'm2' is not open.", False))
    assert failed == CallFailed("m2", 1, "the disk is gone", False)


def test_work_for_what_is_not_open_is_answered_by_a_trainer() -> None:
    router, sent = models(1)
    router.send(update("never", 1, 5))
    assert len(sent["train-0"]) == 1
    assert router.heard("train-0", JobFailed("never", "no")) == JobFailed("never", "no")


def test_weights_go_to_all_trainers_and_what_is_opened_without_any_waits() -> None:
    router, sent = models()
    router.send(SetTenantWeight("ana", 2.0))
    assert [len(messages) for messages in sent.values()] == [1, 1]
    router.down("train-0")
    router.down("train-1")
    router.send(opening("late"))
    router.up("train-1")
    assert sent["train-1"][1:] == [opening("late")]


def test_what_was_closed_is_opened_where_it_was_closed_until_that_is_done() -> None:
    router, sent = models()
    router.send(CloseModel("m2"))
    router.send(backward("m0", 1))
    reopening = OpenModel("m2", "ana", LORA, "folder/m2")
    router.send(reopening)
    assert sent["train-0"][-1] is reopening
    assert not sent["train-1"]
