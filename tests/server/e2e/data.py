"""What the tests' clients train on and ask for. Token ids are those of the tiny model's 384."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tinker
from tinker import types

from tests.server.server_process import ALIAS

ADAM = types.AdamParams(learning_rate=1e-2)
PROMPT = types.ModelInput.from_ints([5, 6, 7, 8, 9])


def training_client(client: tinker.ServiceClient, rank: int = 4, seed: int = 1, **options: Any) -> tinker.TrainingClient:
    return client.create_lora_training_client(base_model=ALIAS, rank=rank, seed=seed, **options).result()


def tokens(length: int, start: int = 5) -> list[int]:
    return [(start + 7 * index) % 300 + 3 for index in range(length + 1)]


def datum(tokens: Sequence[int], **inputs: Sequence[float]) -> types.Datum:
    """The SDK turns lists into tensors, whatever its annotations say."""
    arrays: dict[str, Any] = {name: list(values) for name, values in inputs.items()}
    return types.Datum(model_input=types.ModelInput.from_ints(list(tokens)), loss_fn_inputs=arrays)


def supervised(length: int = 8, start: int = 5, weights: Sequence[float] | None = None) -> types.Datum:
    ids = tokens(length, start)
    return datum(ids[:-1], target_tokens=ids[1:], weights=list(weights or [1.0] * length))


def reinforced(prompt: Sequence[int], sequence: types.SampledSequence, advantage: float = 1.0, spans: bool = False) -> types.Datum:
    """As cookbook recipes make them: advantages on the sampled tokens alone."""
    num_prompt, sampled = len(prompt) - 1, list(sequence.tokens)
    assert sequence.logprobs is not None
    made = datum(
        [*prompt, *sampled[:-1]],
        target_tokens=[*prompt[1:], *sampled],
        logprobs=[0.0] * num_prompt + list(sequence.logprobs),
        advantages=[0.0] * num_prompt + [advantage] * len(sampled),
        sequence_ratio_mask=[0.0] * num_prompt + [1.0] * len(sampled),
    )
    return with_spans(made, len(prompt), sequence.sequence_id or "", len(sampled)) if spans else made


def with_spans(made: types.Datum, num_prompt: int, sequence_id: str, num_sampled: int) -> types.Datum:
    prompt, sampled = types.PromptProvenanceSpan, types.SampledProvenanceSpan
    inputs: list[Any] = [
        prompt(sequence_id=sequence_id, offset=0, length=num_prompt),
        sampled(sequence_id=sequence_id, offset=0, length=num_sampled - 1),
    ]
    targets: list[Any] = [
        prompt(sequence_id=sequence_id, offset=1, length=num_prompt - 1),
        sampled(sequence_id=sequence_id, offset=0, length=num_sampled),
    ]
    return made.with_provenance(model_input=inputs, loss_fn_inputs=targets)


def sampled(client: tinker.SamplingClient, num: int = 1, max_tokens: int = 6, **params: Any) -> list[types.SampledSequence]:
    parameters = types.SamplingParams(max_tokens=max_tokens, stop=[], **params)
    return list(client.sample(PROMPT, num_samples=num, sampling_params=parameters).result().sequences)


def logprobs_of(output: types.ForwardBackwardOutput) -> list[np.ndarray]:
    return [np.asarray(fields["logprobs"].to_numpy()) for fields in output.loss_fn_outputs]


def loss(client: tinker.TrainingClient, *data: types.Datum) -> float:
    """Of a forward pass."""
    return client.forward(list(data or [supervised()]), "cross_entropy").result().metrics["loss:sum"]


def step(client: tinker.TrainingClient, *data: types.Datum, adam: types.AdamParams = ADAM) -> dict[str, float]:
    """One step on `data`; its metrics."""
    client.forward_backward(list(data or [supervised()]), "cross_entropy")
    return client.optim_step(adam).result().metrics or {}
