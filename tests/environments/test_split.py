import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.environments.fair_queue import FairQueue
from plait.environments.protocol import Split
from plait.environments.split import GeneratedSplit, ListedSplit, is_held_out, question_key
from plait.types.errors import ConfigError


def generated(num_questions: int, seed: int = 0) -> GeneratedSplit[str]:
    def draw(index: int, split: Split) -> str:
        return f"Question {(index * 7919 + seed + len(split)) % num_questions}"

    return GeneratedSplit(draw, str, "numbers")


@settings(max_examples=30, deadline=None)
@given(num_questions=st.integers(20, 400), seed=st.integers(0, 100))
def test_generated_questions_never_meet(num_questions: int, seed: int) -> None:
    split = generated(num_questions, seed)
    count = split.count_evaluation(64)
    evaluation = [split.entry(index, "evaluation") for index in range(count)]
    train = {split.entry(index, "train") for index in range(200)}
    assert len(set(evaluation)) == count > 0
    assert not train & set(evaluation)
    assert evaluation == [generated(num_questions, seed).entry(index, "evaluation") for index in range(count)]


def test_a_used_up_space_says_how_many_there_are() -> None:
    split = generated(100)
    count = split.count_evaluation(1000)
    assert 10 < count < 40
    with pytest.raises(IndexError, match=f"at most {count}"):
        split.entry(count, "evaluation")


def test_one_question_cannot_be_split() -> None:
    starved: Split = "train" if is_held_out("Question 0") else "evaluation"
    with pytest.raises((ConfigError, IndexError), match="numbers has"):
        generated(1).entry(0, starved)


@given(texts=st.lists(st.text(alphabet="aB c", max_size=3), min_size=10, max_size=60), own_list=st.booleans())
def test_listed_questions_never_meet(texts: list[str], own_list: bool) -> None:
    train, evaluation = (texts[3:], texts[:3]) if own_list else (texts, None)
    try:
        split = ListedSplit(train, evaluation, str, 5, "list")
    except ConfigError:
        held_out = {question_key(text) for text in (evaluation or texts[-(len(texts) // 10) :])}
        assert {question_key(text) for text in train} <= held_out
        return
    held_out = {question_key(split.entry(index, "evaluation")) for index in range(split.count_evaluation(99))}
    assert not held_out & {question_key(split.entry(index, "train")) for index in range(150)}


def test_every_epoch_has_each_question_once_in_another_order() -> None:
    split = ListedSplit([str(number) for number in range(20)], ["x"], str, 0, "list")
    epochs = [[split.entry(epoch * 20 + position, "train") for position in range(20)] for epoch in range(3)]
    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    with pytest.raises(IndexError, match="at most 1"):
        split.entry(1, "evaluation")


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_fair_queue_is_fair_and_loses_nothing(keys: list[str]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for number, key in enumerate(keys):
        queue.push(key, (key, number))
    popped = [queue.pop() for _ in range(len(queue))]
    assert sorted(popped) == sorted((key, number) for number, key in enumerate(keys))
    for key in set(keys):
        numbers = [number for popped_key, number in popped if popped_key == key]
        assert numbers == sorted(numbers)
        assert [item[0] for item in popped].index(key) < len(set(keys))
    with pytest.raises(LookupError):
        queue.pop()
