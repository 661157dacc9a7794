"""Tools, back-pressure, and clients that go away: on a server of their own."""

import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from plait.models.tokenizer import Tokenizer
from plait.server.database import usage
from plait.server.database.database import Database
from plait.types.messages import Message, ToolCall
from tests.server.openai.clients import MESSAGES, client_of
from tests.server.openai.tool_model import make_tool_model
from tests.server.server_process import ALIAS, ServerProcess

MAX_WAITING = 8
CONTEXT = 2048
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
]


@pytest.fixture(scope="module")
def tool_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("tools")
    make_tool_model(folder / "model")
    settings = {"SAMPLES__MAX_WAITING": MAX_WAITING, "MODEL__MAX_CONTEXT_TOKENS": CONTEXT, "ENGINE__SLOT_TOKENS": 16 * CONTEXT}
    server = ServerProcess(folder, **settings)
    try:
        yield server.start()
    finally:
        server.close_clients()
        server.kill()


@pytest.fixture
def client(tool_server: ServerProcess) -> Iterator[openai.OpenAI]:
    with client_of(tool_server) as client:
        yield client


# ---- tools


def test_tools_and_calls_are_rendered_by_the_chat_template(tool_server: ServerProcess, client: openai.OpenAI) -> None:
    tokenizer = Tokenizer.load(tool_server.model)
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 3}'}}
    asked: list[Any] = [
        *MESSAGES,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "7"},
    ]
    messages = [Message(message["role"], message["content"]) for message in MESSAGES]
    messages += [Message("assistant", "", (ToolCall("add", {"a": 3}, "c"),)), Message("tool", "7", tool_call_id="c")]
    for choice, tools in (("auto", TOOLS), ("none", None)):
        text = tokenizer.chat_template.render(messages, generation_prompt=True, tools=tools)
        chat = client.chat.completions.create(model=ALIAS, messages=asked, tools=TOOLS, tool_choice=choice, max_tokens=1)  # type: ignore[call-overload]
        assert chat.usage.prompt_tokens == len(tokenizer.encode(text))


@pytest.mark.parametrize("arguments", ["no json", "[1]", "3"])
def test_arguments_that_are_no_object_are_refused(client: openai.OpenAI, arguments: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages: list[Any] = [*MESSAGES, {"role": "assistant", "tool_calls": [call]}]
    with pytest.raises(openai.BadRequestError, match="arguments"):
        client.chat.completions.create(model=ALIAS, messages=messages)


# ---- limits


def test_too_many_at_once_are_told_to_come_back(client: openai.OpenAI) -> None:
    with pytest.raises(openai.RateLimitError) as caught:
        client.completions.create(model=ALIAS, prompt="a", n=MAX_WAITING + 1)
    assert caught.value.code == "rate_limit_exceeded"
    assert float(caught.value.response.headers["retry-after"]) > 0
    with pytest.raises(openai.RateLimitError):
        client.completions.create(model=ALIAS, prompt=["a"] * (MAX_WAITING + 1), stream=True)
    patient = client.with_options(max_retries=10)  # Rows of an earlier test may still be leaving.
    assert len(patient.completions.create(model=ALIAS, prompt=["a"] * MAX_WAITING, max_tokens=1).choices) == MAX_WAITING


# ---- clients that go away


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_client_that_goes_away_takes_its_rows_with_it(tool_server: ServerProcess, is_stream: bool) -> None:
    tenant = tool_server.tenant()
    asked: dict[str, Any] = {"model": ALIAS, "messages": MESSAGES, "n": MAX_WAITING, "seed": 1, "max_tokens": CONTEXT}
    with client_of(tool_server, tenant.key) as client:
        if is_stream:
            with client.chat.completions.create(stream=True, **asked) as stream:
                for part in stream:
                    if part.choices[0].delta.content:
                        break
        else:
            with pytest.raises(openai.APITimeoutError):
                client.with_options(timeout=0.5).chat.completions.create(**asked)
        start_s = time.monotonic()
        while True:  # The places are free at once, long before all would have been drawn.
            try:
                client.completions.create(model=ALIAS, prompt="a", n=MAX_WAITING, max_tokens=1)
                break
            except openai.RateLimitError:
                assert time.monotonic() < start_s + 120, "the places are still taken"
    while (num_tokens := sampled_tokens(tool_server, tenant.tenant_id)) < MAX_WAITING:  # Stored every few seconds, in order.
        assert time.monotonic() < start_s + 120, "nothing is metered"
        time.sleep(0.5)
    assert num_tokens < MAX_WAITING * CONTEXT / 2, "stopped early"


def sampled_tokens(server: ServerProcess, tenant_id: str) -> int:
    database = Database.open(f"sqlite:///{server.folder / 'data' / 'plait.db'}")
    try:
        totals = database.submit(lambda session: usage.total_usage(session, tenant_id, 0, time.time() + 7200)).result()
        return sum(used.sampled_tokens for used in totals.values())
    finally:
        database.stop()
