"""Every method of the SDK's SamplingClient, against a real server."""

import asyncio
import pickle
import time
from typing import Any

import numpy as np
import pytest
import tinker
import torch
from tinker import types

from plait.models.tiny import END_OF_TURN_ID
from tests.server.e2e.data import PROMPT, sampled, step, training_client
from tests.server.server_process import ALIAS

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
LENGTH = PROMPT.length


def base_sampler(server: Any, **options: Any) -> tinker.SamplingClient:
    return server.client_for().create_sampling_client(base_model=ALIAS, **options).result()


def greedy(client: tinker.SamplingClient, stop: Any = None, max_tokens: int = 12) -> types.SampledSequence:
    params = types.SamplingParams(max_tokens=max_tokens, temperature=0.0, stop=stop)
    return client.sample(PROMPT, num_samples=1, sampling_params=params).result().sequences[0]


def test_several_samples_and_their_logprobs(server: Any) -> None:
    """Log-probabilities are those of the distribution that was sampled from: at temperature 1 the prompt's own scores agree."""
    client = base_sampler(server)
    sequences = sampled(client, num=4, max_tokens=5)
    assert len({tuple(s.tokens) for s in sequences}) > 1
    assert len({s.sequence_id for s in sequences}) == 4
    for sequence in sequences:
        assert (len(sequence.tokens), sequence.stop_reason) == (5, "length")
        whole = types.ModelInput.from_ints([*PROMPT.to_ints(), *sequence.tokens])
        np.testing.assert_allclose(sequence.logprobs, client.compute_logprobs(whole).result()[LENGTH:], atol=1e-3)  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_samples(server: Any) -> None:
    one, two = base_sampler(server), base_sampler(server)
    assert [s.tokens for s in sampled(one, 3, seed=7)] == [s.tokens for s in sampled(two, 3, seed=7)]
    assert [s.tokens for s in sampled(one, 3, seed=8)] != [s.tokens for s in sampled(two, 3, seed=7)]
    assert [s.tokens for s in sampled(one, 3)] != [s.tokens for s in sampled(one, 3)]


def test_stops(server: Any) -> None:
    """The stop is part of what is returned; [] stops nothing, not even the model's end."""
    client = base_sampler(server)
    free = greedy(client, stop=[])
    assert (len(free.tokens), free.stop_reason) == (12, "length")
    third = list(free.tokens)[2]
    first = list(free.tokens).index(third)
    by_id = greedy(client, stop=[third])
    assert (list(by_id.tokens), by_id.stop_reason) == (list(free.tokens)[: first + 1], "stop")


def test_stop_strings(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    client = server.client_for().create_sampling_client(base_model=server.models[0]).result()
    tokenizer = client.get_tokenizer()
    ascii_ids = [i for i in range(3, 384) if tokenizer.decode([i]).isascii() and tokenizer.decode([i]).isalpha()]
    for seed in range(20):
        free = sampled(client, max_tokens=30, seed=seed)[0]
        text = next((tokenizer.decode([t]) for t in free.tokens if t in ascii_ids), None)
        if text is not None:
            break
    assert text is not None
    for stop in (text, [text, "never there"]):
        params = types.SamplingParams(max_tokens=30, seed=seed, stop=stop)
        found = client.sample(PROMPT, num_samples=1, sampling_params=params).result().sequences[0]
        assert found.stop_reason == "stop"
        assert text in tokenizer.decode(list(found.tokens))
        assert list(found.tokens) == list(free.tokens)[: len(found.tokens)]


def test_the_models_end_stops_unless_other_stops_are_given(server: Any) -> None:
    """With stop=None the end-of-sequence token ends a sample, and is its last token."""
    client = base_sampler(server)
    params = types.SamplingParams(max_tokens=200, temperature=1.0, seed=3)
    ended = [s for s in client.sample(PROMPT, num_samples=8, sampling_params=params).result().sequences if s.stop_reason == "stop"]
    assert ended
    assert {list(s.tokens)[-1] for s in ended} == {END_OF_TURN_ID}
    assert all(END_OF_TURN_ID not in list(s.tokens)[:-1] for s in ended)
    unstopped = types.SamplingParams(max_tokens=200, temperature=1.0, seed=3, stop=[])
    sequences = client.sample(PROMPT, num_samples=8, sampling_params=unstopped).result().sequences
    assert {len(s.tokens) for s in sequences} == {200}
    assert any(END_OF_TURN_ID in s.tokens for s in sequences)


def test_temperature_top_k_and_top_p(server: Any) -> None:
    client = base_sampler(server)
    best = list(greedy(client, stop=[]).tokens)
    assert [list(s.tokens) for s in sampled(client, 2, max_tokens=12, top_k=1)] == [best, best]
    assert [list(s.tokens) for s in sampled(client, 2, max_tokens=12, top_p=1e-6)] == [best, best]
    assert sampled(client, 1, max_tokens=5, temperature=0.5)[0].logprobs is not None


def test_prompt_logprobs_have_the_prompts_length(server: Any) -> None:
    client = base_sampler(server)
    params = types.SamplingParams(max_tokens=1)
    response = client.sample(PROMPT, 1, params, include_prompt_logprobs=True, topk_prompt_logprobs=3).result()
    logprobs, top = response.prompt_logprobs, response.topk_prompt_logprobs
    assert logprobs is not None
    assert top is not None
    assert len(logprobs) == len(top) == LENGTH
    assert logprobs[0] is None
    assert top[0] is None
    assert logprobs == client.compute_logprobs(PROMPT).result()
    for logprob, best in zip(logprobs[1:], top[1:], strict=True):
        assert best is not None
        assert len(best) == 3
        assert best[0][1] >= max(best[1][1], logprob or 0)


def test_last_logprobs_only(server: Any) -> None:
    client = base_sampler(server)
    whole = client.compute_logprobs(PROMPT).result()
    assert client.compute_logprobs(PROMPT, prompt_logprobs_last_n=2).result() == [None, None, None, *whole[-2:]]


@pytest.mark.parametrize("sparse", [False, True])
def test_logprobs_of_chosen_targets(server: Any, sparse: bool) -> None:
    client = base_sampler(server)
    ids = torch.tensor([[PROMPT.to_ints()[i + 1], 20 + i] for i in range(LENGTH - 1)])
    make = types.TensorData.from_torch_sparse if sparse else types.TensorData.from_torch
    params = types.SamplingParams(max_tokens=1)
    scored = client.sample(PROMPT, 1, params, target_prompt_logprobs=make(ids)).result().target_prompt_logprobs
    assert scored is not None
    values = scored.to_torch().to_dense() if sparse else scored.to_torch()
    assert values.shape == (LENGTH - 1, 2)
    np.testing.assert_allclose(values[:, 0], client.compute_logprobs(PROMPT).result()[1:], atol=1e-4)  # type: ignore[arg-type]


def test_alternatives_and_top_of_samples(server: Any) -> None:
    client = base_sampler(server)
    params = types.SamplingParams(max_tokens=4, temperature=1.0, stop=[])
    response = client.sample(PROMPT, 2, params, prompt_alt_tokens_k=3, topk_sample_logprobs=2).result()
    assert response.prompt_alt_tokens is not None
    assert list(response.prompt_alt_tokens.tokens.shape or ()) == [LENGTH - 1, 3]
    for sequence in response.sequences:
        top = sequence.topk_logprobs
        assert top is not None
        assert len(top) == 4
        for best, logprob in zip(top, sequence.logprobs or [], strict=True):
            assert best is not None
            assert best[0][1] >= logprob - 1e-3


def test_copies_of_a_client_share_its_sampler(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", server.admin.key)
    training = training_client(server.client_for())
    step(training)
    client = training.save_weights_and_get_sampling_client().result()
    pickled = pickle.loads(pickle.dumps(client))
    handled = tinker.SamplingClient.from_sampler_handle(client.get_sampler_handle(), api_key=server.admin.key)
    known = client.compute_logprobs(PROMPT).result()
    for copy in (pickled, handled):
        assert copy.compute_logprobs(PROMPT).result() == known
        assert sampled(copy, 2)[0].tokens
        assert copy.get_base_model() == ALIAS


def test_asynchronous_twins(server: Any) -> None:
    async def drive() -> None:
        service = server.client_for()
        client = await service.create_sampling_client_async(base_model=ALIAS)
        params = types.SamplingParams(max_tokens=3, seed=1, stop=[])
        one = await client.sample_async(PROMPT, 2, params)
        two = await client.sample(PROMPT, 2, params)
        assert [s.tokens for s in one.sequences] == [s.tokens for s in two.sequences]
        assert len(await client.compute_logprobs_async(PROMPT)) == LENGTH
        assert await client.get_base_model_async() == ALIAS

    asyncio.run(drive())


def test_a_sample_that_is_given_up_frees_its_place(server: Any) -> None:
    """The SDK tells the server (cancel_future); what remains is served."""

    async def drive() -> None:
        client = base_sampler(server)
        params = types.SamplingParams(max_tokens=240, stop=[])
        future = client.sample(PROMPT, 16, params)
        waiting = asyncio.ensure_future(future.result_async())
        await asyncio.sleep(0.2)
        waiting.cancel()
        async with asyncio.timeout(120):
            assert (await client.sample(PROMPT, 1, types.SamplingParams(max_tokens=1))).sequences

    asyncio.run(drive())


@pytest.mark.parametrize("tokens", [[], [5, 999_999], [5] * 257])
def test_a_prompt_that_does_not_fit_is_refused_at_once(server: Any, tokens: list[int]) -> None:
    client = base_sampler(server)
    start_s = time.monotonic()
    with pytest.raises(tinker.APIStatusError) as refused:
        client.sample(types.ModelInput.from_ints(tokens), 1, types.SamplingParams(max_tokens=1)).result(timeout=120)
    assert refused.value.status_code == 422
    assert time.monotonic() - start_s < 60
