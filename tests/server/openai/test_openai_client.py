"""OpenAI's own client against a real server."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
import tinker

from plait.models.tiny import SPECIAL_TOKENS
from tests.server.e2e.data import datum
from tests.server.openai.clients import MESSAGES, client_of
from tests.server.server_process import ALIAS, ServerProcess


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with client_of(server) as client:
        yield client


@pytest.fixture
def model(server: ServerProcess) -> str:
    return server.models[0]


@pytest.fixture(scope="module")
def checkpoints(_session_server: ServerProcess) -> dict[str, str]:
    """tinker:// paths by kind, of a model that differs from the base."""
    training = _session_server.client_for().create_lora_training_client(ALIAS, rank=4, seed=1).result()
    data = [datum([5, 6, 7, 8], target_tokens=[6, 7, 8, 9], weights=[1.0] * 4)]
    for _ in range(3):
        training.forward_backward(data, "cross_entropy").result()
        training.optim_step(tinker.AdamParams(learning_rate=1e-2)).result()
    sampler = training.save_weights_for_sampler("openai").result().path
    state = training.save_state("openai").result().path
    _session_server.close_clients()
    return {"sampler": sampler, "training": state}


# ---- models


@pytest.mark.parametrize("prefix", ["/v1", "/oai/api/v1"])
def test_models_are_listed_and_found_under_both_prefixes(
    server: ServerProcess, checkpoints: dict[str, str], model: str, prefix: str
) -> None:
    with client_of(server, prefix=prefix) as client:
        listed = {listed.id: listed for listed in client.models.list()}
        assert {model, ALIAS, *checkpoints.values()} <= listed.keys()
        for name in (ALIAS, model, checkpoints["sampler"]):
            assert client.models.retrieve(name) == listed[name]
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.retrieve("tinker://no/weights/such")
        assert caught.value.code == "model_not_found"


def test_checkpoints_and_samplers_answer_as_models(
    server: ServerProcess, client: openai.OpenAI, checkpoints: dict[str, str]
) -> None:
    asked: dict[str, Any] = {"prompt": "What is", "seed": 3, "max_tokens": 12, "temperature": 0}
    base = client.completions.create(model=ALIAS, **asked)
    of_sampler, of_training = (client.completions.create(model=checkpoints[kind], **asked) for kind in ("sampler", "training"))
    assert of_sampler.choices == of_training.choices
    assert of_sampler.choices != base.choices
    sampling_client = server.client_for().create_sampling_client(model_path=checkpoints["sampler"]).result()
    sampler_id = sampling_client._sampling_session_id
    assert client.completions.create(model=sampler_id, **asked).choices == of_sampler.choices


def test_another_tenants_models_are_not_there(server: ServerProcess, checkpoints: dict[str, str]) -> None:
    sampler_id = server.client_for().create_sampling_client(base_model=ALIAS).result()._sampling_session_id
    with client_of(server, server.tenant().key) as stranger:
        assert {listed.id for listed in stranger.models.list()} == set(server.models)
        for name in (*checkpoints.values(), sampler_id):
            with pytest.raises(openai.NotFoundError, match="there is no model") as caught:
                stranger.completions.create(model=name, prompt="a")
            assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
            with pytest.raises(openai.NotFoundError):
                stranger.models.retrieve(name)


# ---- completions


def test_a_completion(client: openai.OpenAI, model: str) -> None:
    completion = client.completions.create(model=model, prompt="What is", seed=1, max_tokens=5, temperature=0.5)
    (choice,), usage = completion.choices, completion.usage
    assert (completion.object, completion.model, choice.index) == ("text_completion", model, 0)
    assert choice.finish_reason in ("length", "stop")
    assert usage is not None
    assert usage.completion_tokens <= 5
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_prompts_come_as_text_or_tokens_one_or_many_each_n_times(client: openai.OpenAI, model: str) -> None:
    asked: dict[str, Any] = {"model": model, "seed": 7, "max_tokens": 6, "n": 2}
    one, two = (client.completions.create(prompt=prompt, **asked).choices for prompt in ([20, 21], [30, 31, 32]))
    both = client.completions.create(prompt=[[20, 21], [30, 31, 32]], **asked).choices
    assert [choice.index for choice in both] == [0, 1, 2, 3]
    assert [choice.text for choice in both] == [choice.text for choice in (*one, *two)]
    assert one[0].text != one[1].text
    texts = client.completions.create(prompt=["What", "is"], **asked).choices
    assert [choice.text for choice in texts[:2]] == [
        choice.text for choice in client.completions.create(prompt="What", **asked).choices
    ]


def test_a_seed_gives_the_same_answer_and_none_another(client: openai.OpenAI, model: str) -> None:
    def text(**more: Any) -> str:
        return client.completions.create(model=model, prompt="What is", max_tokens=16, **more).choices[0].text

    assert text(seed=5) == text(seed=5)
    assert len({text(seed=5), text(seed=6), text(), text()}) == 4


def test_echo_with_logprobs_scores_the_prompt(client: openai.OpenAI, model: str) -> None:
    choice = client.completions.create(
        model=model, prompt="What is it?", echo=True, logprobs=2, max_tokens=3, seed=1, temperature=0
    ).choices[0]
    logprobs = choice.logprobs
    assert choice.text.startswith("What is it?")
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.top_logprobs is not None
    assert logprobs.text_offset is not None
    assert logprobs.token_logprobs[0] is None
    assert all(logprob < 0 for logprob in logprobs.token_logprobs[1:])
    for token, own, top in zip(logprobs.tokens[1:], logprobs.token_logprobs[1:], logprobs.top_logprobs[1:], strict=True):
        assert top[token] == pytest.approx(own, abs=1e-3)
        assert 2 <= len(top) <= 3
    prompt = "".join(logprobs.tokens)[: len("What is it?")]
    assert prompt == "What is it?"
    assert logprobs.text_offset == sorted(logprobs.text_offset)


def test_echo_alone_draws_nothing_that_is_told(client: openai.OpenAI, model: str) -> None:
    choice = client.completions.create(model=model, prompt="What is", echo=True, logprobs=0, max_tokens=0).choices[0]
    assert (choice.text, choice.finish_reason) == ("What is", "length")
    assert choice.logprobs is not None
    assert "".join(choice.logprobs.tokens or ()) == "What is"


def test_text_ends_before_a_stop_string(client: openai.OpenAI, model: str) -> None:
    asked: dict[str, Any] = {"model": model, "prompt": "What is", "seed": 5, "max_tokens": 40, "logprobs": 0}
    whole = client.completions.create(**asked).choices[0].text
    stop = whole[8:10]
    for stops in (stop, [stop, "never there"]):
        choice = client.completions.create(stop=stops, **asked).choices[0]
        assert (choice.text, choice.finish_reason) == (whole[: whole.index(stop)], "stop")
        assert choice.logprobs is not None
        assert max(choice.logprobs.text_offset or (0,)) < len(choice.text)


@pytest.mark.parametrize("more", [{}, {"n": 3}, {"echo": True, "logprobs": 1}, {"stop": "e"}, {"prompt": ["What", "is it"]}])
def test_a_stream_of_completions_adds_up_to_the_whole(client: openai.OpenAI, model: str, more: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"model": model, "prompt": "What is", "seed": 5, "max_tokens": 60} | more
    whole = client.completions.create(**asked)
    parts = list(client.completions.create(stream=True, stream_options={"include_usage": True}, **asked))
    for choice in whole.choices:
        own = [part.choices[0] for part in parts[:-1] if part.choices[0].index == choice.index]
        assert "".join(part.text for part in own) == choice.text
        assert [part.finish_reason for part in own] == [None] * (len(own) - 1) + [choice.finish_reason]
        if choice.logprobs is not None:
            told = [token for part in own if part.logprobs for token in part.logprobs.tokens or ()]
            assert told == choice.logprobs.tokens
    assert parts[-1].choices == []
    assert parts[-1].usage is not None
    assert whole.usage is not None
    assert parts[-1].usage.total_tokens == whole.usage.total_tokens
    assert {part.id for part in parts} == {parts[0].id}


# ---- chats


def test_a_chat(client: openai.OpenAI, model: str) -> None:
    chat = client.chat.completions.create(model=model, messages=MESSAGES, max_completion_tokens=8, n=2, seed=2)
    assert [choice.message.role for choice in chat.choices] == ["assistant", "assistant"]
    assert len({choice.message.content for choice in chat.choices}) == 2
    assert chat.choices[0].message.tool_calls is None
    assert chat.usage is not None
    parts = [{"role": message["role"], "content": [{"type": "text", "text": message["content"]}]} for message in MESSAGES]
    again = client.chat.completions.create(model=model, messages=parts, max_tokens=8, n=2, seed=2)  # type: ignore[arg-type]
    assert again.choices == chat.choices
    follow_up = [*MESSAGES, chat.choices[0].message, {"role": "user", "content": "And 4 + 4?"}]
    assert client.chat.completions.create(model=model, messages=follow_up, max_tokens=3).usage is not None


def test_a_chats_prompt_is_that_of_the_chat_template(client: openai.OpenAI, model: str) -> None:
    chat = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=20, seed=4)
    text = "".join(f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in MESSAGES)
    completion = client.completions.create(model=model, prompt=f"{text}<|im_start|>assistant\n", max_tokens=20, seed=4)
    assert completion.choices[0].text == chat.choices[0].message.content
    assert chat.usage is not None
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == chat.usage.prompt_tokens


def test_a_chats_logprobs(client: openai.OpenAI, model: str) -> None:
    asked: dict[str, Any] = {"model": model, "messages": MESSAGES, "seed": 2, "max_tokens": 30, "logprobs": True, "top_logprobs": 3}
    choice = client.chat.completions.create(**asked).choices[0]
    assert choice.logprobs is not None
    content = choice.logprobs.content or []
    told = bytes(byte for token in content if token.token not in SPECIAL_TOKENS for byte in token.bytes or ())
    assert told.decode(errors="replace") == choice.message.content
    for token in content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        assert all(top.logprob >= token.top_logprobs[-1].logprob for top in token.top_logprobs)
        same = [top.logprob for top in token.top_logprobs if top.bytes == token.bytes]
        assert all(logprob == pytest.approx(token.logprob, abs=1e-3) for logprob in same)
    streamed = [part.choices[0].logprobs for part in client.chat.completions.create(stream=True, **asked)]
    parts = [token for logprobs in streamed if logprobs for token in logprobs.content or ()]
    assert [token.bytes for token in parts] == [token.bytes for token in content]
    assert [token.logprob for token in parts] == pytest.approx([token.logprob for token in content], abs=1e-4)


@pytest.mark.parametrize("more", [{}, {"n": 3}, {"stop": ["a", "the"]}])
def test_a_streamed_chat_adds_up_to_the_whole_and_comes_in_parts(client: openai.OpenAI, model: str, more: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"model": model, "messages": MESSAGES, "seed": 9, "max_tokens": 80} | more
    whole = client.chat.completions.create(**asked)
    parts = list(client.chat.completions.create(stream=True, **asked))
    for choice in whole.choices:
        own = [part.choices[0] for part in parts if part.choices[0].index == choice.index]
        assert own[0].delta.role == "assistant"
        texts = [part.delta.content or "" for part in own]
        assert "".join(texts) == choice.message.content
        assert own[-1].finish_reason == choice.finish_reason
        assert all(part.usage is None for part in parts)
    if not more:
        assert len([text for text in texts if text]) >= 5, "eight tokens or so at a time"


# ---- errors


def test_no_key_and_a_wrong_one(server: ServerProcess, model: str) -> None:
    for key in ("tml-wrong-key", "nonsense"):
        with client_of(server, key) as client, pytest.raises(openai.AuthenticationError) as caught:
            client.chat.completions.create(model=model, messages=MESSAGES)
        assert caught.value.code == "invalid_api_key"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ""}, "stop"),
        ({"extra_body": {"no_such_field": 1}}, "no_such_field"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": "word " * 500}]}, None),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, None),
        ({"top_logprobs": 2}, None),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(
    client: openai.OpenAI, model: str, fields: dict[str, Any], param: str | None
) -> None:
    asked: dict[str, Any] = {"model": model, "messages": MESSAGES} | fields
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**asked)
    assert caught.value.type == "invalid_request_error"
    assert (caught.value.param or "").split(".")[0] == (param or "")


def test_fields_that_ask_for_nothing_are_accepted(client: openai.OpenAI, model: str) -> None:
    client.chat.completions.create(
        model=model, messages=MESSAGES, max_tokens=1, presence_penalty=0, frequency_penalty=0, logit_bias={}, user="me",
        response_format={"type": "text"}, store=False, metadata={"a": "b"}, stop=None, tools=[], service_tier="auto",
    )  # fmt: skip


def test_bodies_that_are_no_requests(client: openai.OpenAI, model: str) -> None:
    http = client._client
    headers = {"authorization": f"Bearer {client.api_key}", "content-type": "application/json"}
    bodies: list[bytes] = [
        b"", b"{", b"[]", b"null", b'{"model": "\\ud800", "prompt": "a"}', b'{"model": 3}', b'{"prompt": "a"}',
        b'{"model": "%s", "prompt": "\\ud800"}' % model.encode(), b'{"model": "a\\u0000b", "prompt": "a"}',
        b'{"model": "%s", "prompt": []}' % model.encode(), b'{"model": "%s", "prompt": ""}' % model.encode(),
        b'{"model": "%s", "prompt": [9999]}' % model.encode(), b'{"model": "%s", "prompt": [-1]}' % model.encode(),
    ]  # fmt: skip
    for body in bodies:
        answer = http.post(f"{client.base_url}completions", content=body, headers=headers)
        assert answer.status_code in (400, 404), (body, answer.text)
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    for method, path in (("GET", "completions"), ("POST", "embeddings"), ("DELETE", "models/x")):
        answer = http.request(method, f"{client.base_url}{path}", headers=headers)
        assert answer.status_code in (404, 405)
        assert answer.json()["error"]["message"]
