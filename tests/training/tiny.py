"""A random tiny decoder, adapters, datums, and the plain loop that is the oracle of the packed trainer."""

import random
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from plait.config.task import LossSettings
from plait.lora.mix import FusedAdapter, SingleLora, module_output_sizes
from plait.models.attention import PaddedAttention
from plait.models.decoder import Decoder
from plait.models.invariance import random_weights
from plait.training.trainer import AdapterTrainer
from plait.training.training_pass import PassSettings
from plait.types.datum import Datum
from plait.types.lora import LoraConfig
from plait.types.model import ModelConfig, RopeScaling

MODEL = ModelConfig(
    family="llama", vocab_size=97, hidden_size=32, intermediate_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8,
    rms_norm_epsilon=1e-5, rope_theta=1e4, rope_scaling=RopeScaling(), tied_embeddings=True, max_context_tokens=512,
)  # fmt: skip
LORA = LoraConfig(rank=4, alpha=8.0, target_modules=("q_proj", "v_proj", "o_proj", "gate_proj", "down_proj", "lm_head"))

PPO = LossSettings(kind="ppo")


def make_decoder(dtype: torch.dtype = torch.float32, model: ModelConfig = MODEL) -> Decoder:
    return Decoder(model, random_weights(model, dtype))


def make_adapter(seed: int = 0, lora: LoraConfig = LORA, model: ModelConfig = MODEL) -> dict[str, Tensor]:
    """Random A and B (not zero: a trained adapter)."""
    generator = torch.Generator().manual_seed(seed)
    inputs = {"o_proj": model.num_heads * model.head_dim, "down_proj": model.intermediate_size}
    tensors = {}
    for module in lora.target_modules:
        for layer in range(1 if module == "lm_head" else model.num_layers):
            prefix = module if module == "lm_head" else f"layers.{layer}.{module}"
            num_inputs = inputs.get(module, model.hidden_size)
            tensors[prefix + ".A"] = torch.randn(lora.rank, num_inputs, generator=generator) * num_inputs**-0.5
            tensors[prefix + ".B"] = torch.randn(module_output_sizes(model)[module], lora.rank, generator=generator) * 0.1
    return tensors


def make_trainer(decoder: Decoder, seed: int = 0, **settings: int | bool) -> AdapterTrainer:
    return AdapterTrainer(decoder, LORA, make_adapter(seed), PassSettings(**settings))  # type: ignore[arg-type]


def make_datums(seed: int = 0, num_groups: int = 3, group_size: int = 4, temperature: float = 1.0) -> list[Datum]:
    """Groups with a common prompt; answers of unequal lengths; every field filled, sampler log-probabilities a bit off."""
    rng = random.Random(seed)
    datums = []
    for _ in range(num_groups):
        prompt = [rng.randrange(MODEL.vocab_size) for _ in range(rng.randrange(2, 12))]
        for _ in range(group_size):
            answer = [rng.randrange(MODEL.vocab_size) for _ in range(rng.randrange(1, 9))]
            tokens, given = prompt + answer, len(prompt) - 1
            advantage = rng.uniform(-1, 1) / 50
            datums.append(
                Datum(
                    tokens=tuple(tokens[:-1]),
                    target_tokens=tuple(tokens[1:]),
                    weights=(0.0,) * given + (1 / 50,) * len(answer),
                    logprobs=(0.0,) * given + tuple(-4.5 + rng.uniform(-0.3, 0.3) for _ in answer),
                    advantages=(0.0,) * given + (advantage,) * len(answer),
                    temperature=temperature,
                )
            )
    return datums


def plain_logprobs(decoder: Decoder, datum: Datum, adapter: dict[str, Tensor] | None, lora: LoraConfig = LORA) -> Tensor:
    """Log-probability of every target, one sequence alone, all logits at once."""
    length, config = len(datum.tokens), decoder.config
    attention = PaddedAttention(1, length, config.num_heads // config.num_kv_heads, decoder.dtype, decoder.device)
    delta = None if adapter is None else SingleLora(FusedAdapter(lora, adapter, config, decoder.dtype))
    hidden = decoder.forward(torch.tensor(datum.tokens), torch.arange(length), attention, delta)
    logits = decoder.logits(hidden, delta).float() / datum.temperature
    return F.log_softmax(logits, dim=-1)[torch.arange(length), torch.tensor(datum.target_tokens)]


def plain_gradients(
    decoder: Decoder, adapter: dict[str, Tensor], datums: Sequence[Datum], loss: Callable[[Tensor, Datum, Tensor | None], Tensor]
) -> dict[str, Tensor]:
    """Sum over datums, one at a time, of the gradients of `loss(logprobs_T, datum, base_logprobs_T)`."""
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in adapter.items()}
    for datum in datums:
        with torch.no_grad():
            base = plain_logprobs(decoder, datum, None)
        loss(plain_logprobs(decoder, datum, leaves), datum, base).backward()
    return {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


def with_own_logprobs(datums: Sequence[Datum], logprobs: Sequence[np.ndarray]) -> list[Datum]:
    """The datums as if the trainer's own policy had drawn them."""
    return [
        Datum(d.tokens, d.target_tokens, d.weights, tuple(float(x) for x in row), d.advantages, d.temperature)
        for d, row in zip(datums, logprobs, strict=True)
    ]


def same_bits(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def gradients(trainer: AdapterTrainer, datums: list[Datum], loss: LossSettings = PPO) -> dict[str, Tensor]:
    """What one pass adds to a fresh trainer."""
    trainer.forward_backward(datums, loss)
    return dict(trainer._gradients)
