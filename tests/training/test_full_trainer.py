"""Training of all weights: gradients against plain autograd and against transformers, and the state of its steps."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from plait.config.task import LossSettings, OptimizerSettings
from plait.models.decoder import Decoder
from plait.models.tensor_names import hf_name, tensor_shapes
from plait.models.tiny import make_tiny_model, tiny_config
from plait.models.weights import load_model
from plait.training.full_trainer import FullTrainer
from plait.training.training_pass import PassSettings
from plait.types.datum import Datum
from plait.types.errors import AdapterError
from plait.types.model import ModelConfig
from tests.training.tiny import MODEL, PPO, make_datums, plain_logprobs, same_bits

CROSS_ENTROPY = LossSettings(kind="cross_entropy")
ADAM = OptimizerSettings(learning_rate=1e-2)


def random_weights(config: ModelConfig, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(7)

    def tensor(shape: tuple[int, ...]) -> Tensor:
        drawn = torch.randn(shape, generator=generator)
        return (1 + 0.3 * drawn if len(shape) == 1 else drawn * shape[1] ** -0.5).to(dtype)

    return {name: tensor(shape) for name, shape in tensor_shapes(config).items()}


def make_full(config: ModelConfig = MODEL, dtype: torch.dtype = torch.float32, **settings: Any) -> FullTrainer:
    weights = random_weights(config, dtype)
    return FullTrainer(Decoder(config, weights), weights, PassSettings(**settings))


def full_gradients(trainer: FullTrainer, datums: list[Datum], loss: LossSettings = PPO) -> dict[str, Tensor]:
    trainer.forward_backward(datums, loss)
    return dict(trainer._gradients)


def plain_hidden(config: ModelConfig, weights: dict[str, Tensor], tokens: tuple[int, ...]) -> Tensor:
    """A decoder of nothing but torch's own differentiable operations."""
    x, length = F.embedding(torch.tensor(tokens), weights["embed_tokens"]), len(tokens)
    angles = torch.arange(length)[:, None] * config.rope_theta ** (-torch.arange(0, config.head_dim, 2) / config.head_dim)
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return weight * x / (x.pow(2).mean(-1, keepdim=True) + config.rms_norm_epsilon).sqrt()

    def turn(x: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * cos[:, None] + torch.cat([-second, first], -1) * sin[:, None]

    for index in range(config.num_layers):
        w = {name.removeprefix(f"layers.{index}."): tensor for name, tensor in weights.items()}
        normed = norm(x, w["input_norm"])
        q, k, v = (
            F.linear(normed, w[m], w.get(f"{m}.bias")).view(length, -1, config.head_dim) for m in ("q_proj", "k_proj", "v_proj")
        )
        if config.qk_norm:
            q, k = norm(q, w["q_norm"]), norm(k, w["k_norm"])
        q, k, v = (part.transpose(0, 1)[None] for part in (turn(q), turn(k), v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)[0].transpose(0, 1).flatten(1)
        x = x + F.linear(mixed, w["o_proj"], w.get("o_proj.bias"))
        normed = norm(x, w["post_attention_norm"])
        x = x + F.linear(F.silu(F.linear(normed, w["gate_proj"])) * F.linear(normed, w["up_proj"]), w["down_proj"])
    return norm(x, weights["norm"])


def plain_full_gradients(
    config: ModelConfig, weights: dict[str, Tensor], datums: list[Datum], kl_to_base: float = 0.0
) -> dict[str, Tensor]:
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in weights.items()}

    def logprobs(tensors: dict[str, Tensor], datum: Datum) -> Tensor:
        logits = F.linear(plain_hidden(config, tensors, datum.tokens), tensors.get("lm_head", tensors["embed_tokens"]))
        return F.log_softmax(logits / datum.temperature, -1)[torch.arange(len(datum.tokens)), torch.tensor(datum.target_tokens)]

    for datum in datums:
        logp, q, a, w = logprobs(leaves, datum), *(torch.tensor(v) for v in (datum.logprobs, datum.advantages, datum.weights))
        loss = -torch.min((logp - q).exp() * a, (logp - q).exp().clamp(0.8, 1.2) * a).sum()
        if kl_to_base:
            base = logprobs(random_weights(config), datum)
            loss = loss + kl_to_base * (w * ((base - logp).exp() - 1 - (base - logp))).sum()
        loss.backward()
    return {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


def assert_all_close(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        scale = tensor.abs().max().item()
        assert scale > 0, name
        assert (found[name] - tensor).abs().max().item() <= tolerance * scale, name


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_gradients_of_every_parameter_equal_plain_autograd(family: Any, tied: bool) -> None:
    config = msgspec.structs.replace(tiny_config(family), tied_embeddings=tied)
    datums = make_datums(temperature=0.8)
    found = full_gradients(make_full(config, micro_batch_tokens=40), datums)
    assert_all_close(found, plain_full_gradients(config, random_weights(config), datums), 2e-4)


def test_a_penalty_towards_the_base_compares_with_the_frozen_weights() -> None:
    weights, datums, loss = random_weights(MODEL), make_datums(), LossSettings(kind="ppo", kl_to_base=0.3)
    trainer = make_full()
    trainer.forward_backward(datums, PPO)
    trainer.optim_step(ADAM)
    moved = trainer.weight_tensors()
    found = full_gradients(trainer, datums, loss)
    assert_all_close(found, plain_full_gradients(MODEL, moved, datums, kl_to_base=0.3), 5e-4)
    assert same_bits(weights, random_weights(MODEL))


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_gradients_equal_those_of_transformers(family: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder = make_tiny_model(tmp_path / family, family)
    config, weights = load_model(folder)
    datums = make_datums(num_groups=1)
    trainer = FullTrainer(Decoder(config, weights), weights)
    found = full_gradients(trainer, datums, CROSS_ENTROPY)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    for datum in datums:
        logits = model(torch.tensor([datum.tokens])).logits[0]
        logp = F.log_softmax(logits, -1)[torch.arange(len(datum.tokens)), torch.tensor(datum.target_tokens)]
        (-(logp * torch.tensor(datum.weights)).sum()).backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert_all_close({hf_name(name): gradient for name, gradient in found.items()}, expected, 2e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_forward_pass_has_the_bits_of_an_engine_with_the_weights(dtype: torch.dtype) -> None:
    trainer, datums = make_full(dtype=dtype), make_datums()
    trainer.forward_backward(datums, PPO)
    trainer.optim_step(ADAM)
    rounded = {name: tensor.to(dtype) for name, tensor in trainer.weight_tensors().items()}
    frozen = Decoder(MODEL, rounded)
    for datum, logprobs in zip(datums, trainer.forward(datums), strict=True):
        alone = plain_logprobs(frozen, datum, None).detach()
        torch.testing.assert_close(torch.from_numpy(logprobs), alone, atol=0 if dtype == torch.bfloat16 else 1e-6, rtol=1e-6)
    assert any((rounded[name] != weight).any() for name, weight in random_weights(MODEL, dtype).items())


def test_checkpointing_and_the_cut_change_only_rounding() -> None:
    datums = make_datums()
    whole = full_gradients(make_full(), datums)
    assert same_bits(full_gradients(make_full(checkpoint_layers=True), datums), whole)
    assert_all_close(full_gradients(make_full(micro_batch_tokens=17), datums), whole, 1e-4)


def test_state_comes_back_bit_for_bit_and_goes_on_as_unbroken() -> None:
    unbroken, datums = make_full(), make_datums()
    for _ in range(2):
        unbroken.forward_backward(datums, PPO)
        unbroken.optim_step(ADAM)
    weights, state = unbroken.weight_tensors(), unbroken.state_tensors()
    resumed = make_full()
    resumed.forward_backward(datums, PPO)
    resumed.load_state(weights, state)
    assert not resumed.has_gradients
    for trainer in (unbroken, resumed):
        trainer.forward_backward(datums, PPO)
        trainer.optim_step(ADAM)
    assert same_bits(resumed.weight_tensors(), unbroken.weight_tensors())
    assert same_bits(resumed.state_tensors(), unbroken.state_tensors())
    with pytest.raises(AdapterError, match="embed_tokens"):
        resumed.load_state({name: tensor for name, tensor in weights.items() if name != "embed_tokens"}, state)


def test_gradients_of_several_passes_add_up_until_the_step() -> None:
    datums = make_datums()
    parts = make_full()
    parts.forward_backward(datums[:5], PPO)
    parts.forward_backward(datums[5:], PPO)
    assert_all_close(dict(parts._gradients), full_gradients(make_full(), datums), 1e-4)
    parts.discard_gradients()
    before = parts.weight_tensors()
    parts.skip_step()
    assert same_bits(parts.weight_tensors(), before)


def test_embeddings_that_are_tied_are_trained_once() -> None:
    trainer = make_full()
    assert "lm_head" not in trainer.weight_tensors()
    trainer.forward_backward(make_datums(), PPO)
    trainer.optim_step(ADAM)
    assert trainer.decoder.embedding_VE.equal(trainer.weight_tensors()["embed_tokens"])


def test_what_is_given_up_and_taken_back_goes_on_as_unbroken() -> None:
    parked, unbroken, datums = make_full(dtype=torch.bfloat16), make_full(dtype=torch.bfloat16), make_datums()
    for trainer in (parked, unbroken):
        trainer.forward_backward(datums, PPO)
        trainer.optim_step(ADAM)
        trainer.forward_backward(datums[:3], PPO)
    tensors = {name: tensor.clone() for name, tensor in parked.give_up().items()}
    assert sum(tensor.nbytes for tensor in tensors.values()) + parked.decoder.num_bytes < parked.reserved_bytes
    assert parked.decoder.num_bytes == 0
    parked.take_back(tensors)
    for trainer in (parked, unbroken):
        trainer.forward_backward(datums, PPO)
        trainer.optim_step(ADAM)
    assert same_bits(parked.weight_tensors(), unbroken.weight_tensors())
    for left, right in zip(parked.forward(datums), unbroken.forward(datums), strict=True):
        assert (left == right).all()
