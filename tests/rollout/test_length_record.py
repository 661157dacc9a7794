"""What is read back is what was written, bounded; anything else is refused whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.rollout import length_record
from plait.rollout.length_estimates import HistoryKey, LengthHistory, Siblings
from plait.rollout.length_record import MAX_PROMPTS_PER_TASK, decode_lengths, encode_lengths, restore, snapshot

keys = st.tuples(st.sampled_from(["ada", "bob"]), st.sampled_from(["sums", "run-1/sums"]), st.integers(-(2**63), 2**63 - 1))


def learnt(*groups: tuple[HistoryKey, list[int]]) -> LengthHistory:
    history = LengthHistory()
    for key, lengths in groups:
        siblings = Siblings()
        for each in lengths:
            siblings.add(each)
        history.add(key, siblings)
    return history


@given(st.lists(st.tuples(keys, st.lists(st.integers(1, 10**6), min_size=1, max_size=4)), max_size=20))
def test_what_was_written_is_read_to_the_bit(groups: list[tuple[HistoryKey, list[int]]]) -> None:
    history, again = learnt(*groups), LengthHistory()
    restore(again, decode_lengths(encode_lengths(snapshot(history))))
    assert sorted(snapshot(again)) == sorted(snapshot(history))
    for task in {key[:2] for key, _ in groups}:  # Of each task the order of use is kept, by which it forgets.
        assert [one for one in snapshot(again) if one[0][:2] == task] == [one for one in snapshot(history) if one[0][:2] == task]


def test_of_each_task_the_latest_are_kept() -> None:
    count = MAX_PROMPTS_PER_TASK + 3
    lengths = [(("ada", "sums", number), 1.0, 1.0) for number in range(count)] + [(("ada", "other", 1), 2.0, 2.0)]
    data = encode_lengths(lengths)
    read = list(decode_lengths(data))
    assert [key[2] for key, *_ in read if key[1] == "sums"] == list(range(3, count))
    assert len(read) == MAX_PROMPTS_PER_TASK + 1
    assert len(data) < 30 * len(read)


@given(st.data())
def test_what_is_torn_or_changed_is_refused(data: st.DataObject) -> None:
    whole = encode_lengths([(("ada", "sums", 5), 10.0, 20.0), (("ada", "sums", 6), 1.0, 2.0)])
    place = data.draw(st.integers(0, len(whole) - 1))
    torn = whole[:place]
    changed = whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :]
    for bad in (torn, changed):
        with pytest.raises(ValueError, match="damaged"):
            decode_lengths(bad)


def test_what_another_version_wrote_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other_python = encode_lengths([(("ada", "sums", 5), 10.0, 20.0)])
    monkeypatch.setattr(length_record, "_hash_check", lambda: 1)
    with pytest.raises(ValueError, match="another version of Plait or Python"):
        decode_lengths(other_python)
    content = b"\x93\x01\x01\xc0"
    with pytest.raises(ValueError, match="of another version"):
        decode_lengths(length_record._digest(content) + content)
