import pytest

from plait.observe.events import StepCommitted
from plait.tasks.gap_alarm import gap_problem


def step(gap: float | None, staleness: float | None = 0.0) -> StepCommitted:
    return StepCommitted(
        time_s=0.0, task="a", step=3, adapter_digest="", loss=0.0, grad_norm=1.0, learning_rate=0.1, num_sequences=1,
        num_trained_tokens=1, logprob_gap_max=gap, staleness_mean=staleness,
    )  # fmt: skip


@pytest.mark.parametrize(("gap", "invariant"), [(None, True), (0.0, True), (0.0, False), (0.3, False)])
def test_what_rounding_explains_is_no_alarm(gap: float | None, invariant: bool) -> None:
    assert gap_problem(step(gap), invariant) == ""


@pytest.mark.parametrize(("gap", "invariant"), [(1e-6, True), (0.7, False), (float("inf"), False)])
def test_a_larger_gap_names_step_and_size(gap: float, invariant: bool) -> None:
    assert f"step 3: trainer and sampler log-probabilities of the same tokens differ by up to {gap:.3g}" in gap_problem(
        step(gap), invariant
    )


def test_a_stale_batch_is_expected_to_differ() -> None:
    assert gap_problem(step(0.4, staleness=0.5), batch_invariant=True) == ""
