"""Tokens to pieces of an answer."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from plait.server.openai.choice import Choice, Piece
from plait.types.sampling import StopReason

END = 256
"""All other tokens are bytes."""


def bytes_of(token: int) -> bytes:
    return b"<end>" if token == END else bytes([token])


def choice(*stops: str) -> Choice:
    return Choice(bytes_of, frozenset({END}), stops)


def take(choice: Choice, tokens: list[int], stop: StopReason = StopReason.BUDGET) -> Piece:
    return choice.take(tokens, [-float(token) for token in tokens], [], stop)


@given(st.text(alphabet="aé€S", max_size=12), st.lists(st.integers(0, 40), max_size=6))
def test_however_chunks_are_cut_text_and_tokens_are_the_same(text: str, cuts: list[int]) -> None:
    tokens = list(text.encode())
    whole = take(choice("Sa"), tokens, StopReason.LENGTH)
    cut, under_way = [0, *sorted(min(cut, len(tokens)) for cut in cuts)], choice("Sa")
    pieces = [take(under_way, tokens[start:end]) for start, end in pairwise(cut)]
    pieces.append(take(under_way, tokens[cut[-1] :], StopReason.LENGTH))
    assert "".join(piece.text for piece in pieces) == whole.text
    assert [token for piece in pieces for token in piece.tokens] == list(whole.tokens)
    assert [piece.finish for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1].finish == whole.finish


def test_tokens_of_a_stop_string_are_left_out() -> None:
    piece = take(choice("cd"), list(b"abcd"), StopReason.STOP_STRING)
    assert (piece.text, piece.finish) == ("ab", "stop")
    assert [(token.token, token.start, token.logprob) for token in piece.tokens] == [(97, 0, -97.0), (98, 1, -98.0)]


def test_a_stop_token_is_no_text() -> None:
    piece = take(choice(), [97, END], StopReason.STOP_TOKEN)
    assert (piece.text, len(piece.tokens), piece.finish) == ("a", 1, "stop")


def test_the_end_of_the_context_is_a_matter_of_length() -> None:
    assert take(choice(), [97], StopReason.CONTEXT).finish == "length"
    assert take(choice(), [97], StopReason.LENGTH).finish == "length"


def test_a_token_is_told_of_when_its_text_is_out() -> None:
    under_way = choice()
    first, second = "é".encode()
    assert take(under_way, [97, first]) == Piece("a", take(choice(), [97]).tokens)
    piece = take(under_way, [second])
    assert (piece.text, [token.start for token in piece.tokens]) == ("é", [1, 1])
