"""What is given out is never taken back."""

from hypothesis import given
from hypothesis import strategies as st

from plait.server.openai.text_stream import TextStream

texts = st.text(alphabet="ab.é€😀", max_size=30)
stop_lists = st.lists(st.text(alphabet="ab.é😀", min_size=1, max_size=4), max_size=3)


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def first_stop(text: str, stops: list[str]) -> str:
    """The text before the stop string that is complete first; of several, the one that starts first."""
    for end in range(len(text) + 1):
        starts = [text[:end].find(stop) for stop in stops if stop in text[:end]]
        if starts:
            return text[: min(starts)]
    return text


@given(texts, st.lists(st.integers(0, 90), max_size=10))
def test_however_bytes_are_cut_the_text_is_the_same_and_no_character_is_torn(text: str, cuts: list[int]) -> None:
    stream = TextStream()
    released = [stream.feed(piece) for piece in pieces_of(text.encode(), cuts)]
    assert "�" not in "".join(released)
    assert "".join(released) + stream.finish() == text


@given(st.binary(max_size=20), st.lists(st.integers(0, 20), max_size=5))
def test_bytes_that_are_no_text_decode_as_a_whole_would(data: bytes, cuts: list[int]) -> None:
    stream = TextStream()
    assert "".join(stream.feed(piece) for piece in pieces_of(data, cuts)) + stream.finish() == data.decode(errors="replace")


@given(texts, stop_lists)
def test_nothing_of_a_stop_string_is_given_out(text: str, stops: list[str]) -> None:
    stream, released = TextStream(stops), ""
    for character in text:
        released += stream.feed(character.encode())
        assert not any(stop in released for stop in stops)
    released += stream.finish()
    assert released == first_stop(text, stops)
    assert stream.is_stopped == (released != text or any(stop in text for stop in stops))
    assert stream.num_released == len(released)


def test_text_goes_out_as_soon_as_no_stop_string_can_begin_in_it() -> None:
    stream = TextStream(["STOP"])
    assert stream.feed(b"to the S") == "to the "
    assert stream.holds_back
    assert stream.feed(b"un") == "Sun"
    assert not stream.holds_back
    assert stream.feed(b" STO") == " "
    assert stream.finish() == "STO"
