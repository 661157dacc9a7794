"""Calls of tools in answers, whole and in streams, from an engine that draws a given text."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from plait.models.tokenizer import Tokenizer
from tests.rollout.on_loop import on_loop
from tests.server.openai.clients import MESSAGES
from tests.server.openai.in_process import Connection, Endpoint, ScriptedEngine, settle
from tests.server.openai.tool_model import make_tool_model

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 3, "b": "€"}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(make_tool_model(Path(tmp_path_factory.mktemp("tools"))))


def events(tokenizer: Tokenizer, text: str, **more: Any) -> list[Any]:
    """What a client is sent, when the model answers `text`."""
    found: list[Any] = []

    @on_loop
    async def ask() -> None:
        endpoint = Endpoint(tokenizer, ScriptedEngine(tokenizer.encode(text)))
        body = {"model": "base", "messages": MESSAGES, "tools": TOOLS} | more
        connection = Connection(endpoint, "/oai/api/v1/chat/completions", body)
        await settle(endpoint, 1)
        while endpoint.engine.chunks:
            endpoint.run_chunks()
            await settle(endpoint)
        await asyncio.wait_for(connection.task, 120)
        await settle(endpoint)
        found.extend(connection.events())

    ask()
    return found


def test_a_call_in_a_whole_answer(tokenizer: Tokenizer) -> None:
    (chat,) = events(tokenizer, f"I add.\n{CALL}\n{CALL}")
    (choice,) = chat["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("I add.", "tool_calls")
    calls = choice["message"]["tool_calls"]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"a": 3, "b": "€"}] * 2
    assert len({call["id"] for call in calls}) == 2


def test_a_call_without_text_has_no_content(tokenizer: Tokenizer) -> None:
    (chat,) = events(tokenizer, CALL)
    assert chat["choices"][0]["message"]["content"] is None


@pytest.mark.parametrize("more", [{"tools": []}, {"tool_choice": "none"}])
def test_without_tools_a_call_is_text(tokenizer: Tokenizer, more: dict[str, Any]) -> None:
    (chat,) = events(tokenizer, CALL, **more)
    assert chat["choices"][0]["message"] == {"role": "assistant", "content": CALL, "refusal": None}
    assert chat["choices"][0]["finish_reason"] == "stop"


def test_calls_in_a_stream(tokenizer: Tokenizer) -> None:
    *parts, done = events(tokenizer, f"I add.\n{CALL}\n{CALL}", stream=True, stream_options={"include_usage": True})
    assert done == "[DONE]"
    assert parts.pop()["usage"]["completion_tokens"] > 0
    choices = [part["choices"][0] for part in parts]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "I add.\n"
    calls = [call for choice in choices for call in choice["delta"].get("tool_calls", [])]
    assert [(call["index"], call["function"]["name"]) for call in calls] == [(0, "add"), (1, "add")]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"a": 3, "b": "€"}] * 2
    assert [choice["finish_reason"] for choice in choices[-2:]] == [None, "tool_calls"]


def test_no_part_of_a_character_and_no_part_of_a_stop_string_is_sent(tokenizer: Tokenizer) -> None:
    *parts, _ = events(tokenizer, "naïve 😀 text STOP more", stream=True, stop="STOP", tools=[], logprobs=True)
    texts = [part["choices"][0]["delta"].get("content", "") for part in parts]
    assert "".join(texts) == "naïve 😀 text "
    assert not any("�" in text or "S" in text for text in texts)
    assert parts[-1]["choices"][0]["finish_reason"] == "stop"
    told = [token for part in parts if part["choices"][0]["logprobs"] for token in part["choices"][0]["logprobs"]["content"]]
    assert bytes(byte for token in told for byte in token["bytes"]).decode() == "naïve 😀 text "
