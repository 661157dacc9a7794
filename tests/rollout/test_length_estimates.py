"""Estimates from siblings and history, and how their errors are told."""

from hypothesis import given
from hypothesis import strategies as st

from plait.rollout.length_estimates import EstimateErrors, LengthHistory, PromptLengths, Siblings, estimated_tokens, running_maximum

KEY = ("ada", "sums", 1)
lengths = st.lists(st.integers(1, 1000), max_size=16)


def siblings(*num_tokens: int) -> Siblings:
    finished = Siblings()
    for each in num_tokens:
        finished.add(each)
    return finished


@given(finished=lengths, longest=st.integers(0, 1000))
def test_without_history_it_is_the_running_maximum(finished: list[int], longest: int) -> None:
    expected = max(finished, default=1000)
    assert running_maximum(siblings(*finished), 1000) == expected
    assert estimated_tokens(siblings(*finished), None, longest, 1000) == max(expected, longest)


@given(finished=lengths, mean=st.floats(1, 1000), longest=st.integers(0, 1000))
def test_history_counts_as_so_many_siblings(finished: list[int], mean: float, longest: int) -> None:
    estimate = estimated_tokens(siblings(*finished), PromptLengths(mean, mean), longest, 1000)
    assert longest <= estimate <= 1000
    low, high = min([mean, *finished]), max([mean, *finished, longest])
    assert low - 1e-6 <= estimate <= high + 1e-6


def test_a_sample_that_outlives_its_estimate_raises_it() -> None:
    assert estimated_tokens(siblings(10, 20), PromptLengths(12.0, 20.0), 90, 1000) == 90


def test_history_follows_the_newest_step_by_half() -> None:
    history = LengthHistory()
    history.add(KEY, siblings(100, 200))
    history.add(KEY, siblings(250, 450))
    assert history.get(KEY) == PromptLengths(250.0, 325.0)


def test_history_keeps_prompts_of_tenants_and_tasks_apart() -> None:
    history = LengthHistory()
    history.add(KEY, siblings(5))
    assert history.get(("bob", "sums", 1)) is None
    assert history.get(("ada", "words", 1)) is None


def test_a_group_without_a_finished_sample_says_nothing() -> None:
    history = LengthHistory()
    history.add(KEY, siblings())
    assert len(history) == 0


def test_history_is_bounded_and_forgets_what_is_oldest() -> None:
    history = LengthHistory(max_prompts=2)
    for digest in (1, 2, 1, 3):
        history.add(("ada", "sums", digest), siblings(5))
    assert [history.get(("ada", "sums", digest)) is not None for digest in (1, 2, 3)] == [True, False, True]


def test_errors_are_relative_to_the_true_length() -> None:
    errors = EstimateErrors()
    assert (errors.mean_running_maximum, errors.mean_estimate) == (0.0, 0.0)
    errors.add(100, running_maximum=300.0, estimate=110.0)
    errors.add(200, running_maximum=100.0, estimate=200.0)
    assert (errors.num, errors.mean_running_maximum, errors.mean_estimate) == (2, 1.25, 0.05)
