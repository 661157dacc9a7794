"""Calls of tools in text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.server.openai.tool_calls import CalledTool, Part, ToolCallStream

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "ü"}}\n</tool_call>'


def read(pieces: list[str]) -> list[Part]:
    """With neighbouring texts joined: how text is cut says nothing."""
    stream = ToolCallStream()
    parts = [part for piece in pieces for part in stream.feed(piece)] + stream.finish()
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


@given(st.lists(st.sampled_from([CALL, "text", "<tool", "_call>", "</tool_call>", "\n", "<", "{}"]), max_size=6), st.data())
def test_however_text_is_cut_the_calls_are_the_same(blocks: list[str], data: st.DataObject) -> None:
    text = "".join(blocks)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert calls_in(read(pieces)) == calls_in(read([text]))


def calls_in(parts: list[Part]) -> list[Part]:
    return [part for part in parts if isinstance(part, CalledTool)]


@given(st.text(alphabet="<tool_ca>/ab", max_size=40))
def test_text_without_calls_comes_through_unchanged(text: str) -> None:
    assert "".join(part for part in read(list(text)) if isinstance(part, str)) == text


def test_two_calls_after_a_sentence() -> None:
    first, *calls = read([f"I will add.\n{CALL}\n{CALL}\n"])
    assert first == "I will add.\n"
    assert [call.name for call in calls if isinstance(call, CalledTool)] == ["add", "add"]
    assert all(json.loads(call.arguments) == {"a": 1, "b": "ü"} for call in calls if isinstance(call, CalledTool))


def test_a_last_call_may_lack_its_end() -> None:
    assert calls_in(read([CALL.removesuffix("\n</tool_call>")])) == calls_in(read([CALL]))


@pytest.mark.parametrize(
    "body",
    [
        "not json", "[]", '{"name": 3}', '{"arguments": {}}', '{"name": "f", "arguments": "text"}',
        '{"name": "f", "arguments": []}',        '{"name": "\\ud800"}', '{"name": "f", "arguments": {"x": NaN}}', "[" * 100_000,
        "null",
    ],
)  # fmt: skip
def test_what_is_no_call_stays_text(body: str) -> None:
    text = f"<tool_call>{body}</tool_call>"
    assert read([text]) == [text]


def test_a_call_goes_out_when_it_is_complete() -> None:
    stream = ToolCallStream()
    assert stream.feed("ok <tool_c") == ["ok "]
    assert stream.feed('all>{"name": "f"}</tool') == []
    assert stream.feed("_call> ") == [CalledTool("f", "{}")]
    assert stream.finish() == []
