import pytest

from plait.operations.future_state import FailureCategory
from plait.operations.gradient_guard import GradientGuard, PoisonedGradients


def test_a_step_takes_gradients_that_are_all_there() -> None:
    guard = GradientGuard()
    guard.forward_backward_done(1)
    guard.forward_backward_done(2)
    guard.check_optim_step(3)
    assert guard.waiting == (1, 2), "until the step is done, they are what to run again"
    guard.clear()
    assert guard.waiting == ()


def test_a_failed_call_fails_the_next_step_once() -> None:
    guard = GradientGuard()
    guard.forward_backward_done(1)
    guard.forward_backward_failed(2, "token 99 is out of the vocabulary")
    guard.forward_backward_done(3)
    with pytest.raises(PoisonedGradients, match=r"seq_id 4.*seq_id 2 failed.*token 99") as error:
        guard.check_optim_step(4)
    assert error.value.category == FailureCategory.USER == "user"
    assert error.value.remedy
    assert guard.waiting == (), "what had accumulated goes too"
    guard.forward_backward_done(5)
    guard.check_optim_step(6)
    assert guard.waiting == (5,)


def test_the_first_of_several_failures_is_named() -> None:
    guard = GradientGuard()
    for seq_id in (1, 2, 3):
        guard.forward_backward_failed(seq_id, f"error {seq_id}")
    with pytest.raises(PoisonedGradients, match=r"seq_id 1 \(and 2 more\) failed.*error 1"):
        guard.check_optim_step(4)


def test_a_load_ends_the_poison_too() -> None:
    guard = GradientGuard()
    guard.forward_backward_failed(1, "bad")
    guard.clear()
    guard.check_optim_step(3)
