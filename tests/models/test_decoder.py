"""The decoder apart from its parity with transformers (`test_parity`): fused layers, checkpointing, prepacking, adapters."""

import pytest
import torch
from torch import Tensor

from plait.models.attention import PaddedAttention
from plait.models.decoder import SITE_MODULES, UNEMBED, Decoder
from plait.models.invariance import random_weights
from plait.models.kernels import has_onednn
from plait.models.tiny import tiny_config
from plait.types.model import ModelConfig

LENGTH = 21


def run(decoder: Decoder, tokens_T: Tensor, **options: object) -> Tensor:
    config = decoder.config
    attention = PaddedAttention(1, len(tokens_T), config.num_heads // config.num_kv_heads, decoder.dtype, decoder.device)
    return decoder.forward(tokens_T, torch.arange(len(tokens_T)), attention, **options)  # type: ignore[arg-type]


def tokens(config: ModelConfig) -> Tensor:
    return torch.randint(0, config.vocab_size, (LENGTH,), generator=torch.Generator().manual_seed(0))


class Recorder:
    """A `LoraDelta` that adds a trainable multiple of the site's own output."""

    def __init__(self) -> None:
        self.factor = torch.ones((), requires_grad=True)
        self.calls: list[tuple[str, int]] = []

    def __call__(self, site: str, layer: int, x_RI: Tensor, y_RO: Tensor) -> Tensor:
        self.calls.append((site, layer))
        return y_RO + 0.1 * self.factor * y_RO


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_prepacked_weights_give_the_same_bits(dtype: torch.dtype) -> None:
    if not has_onednn(dtype):
        pytest.skip("no oneDNN in this dtype here")
    config = tiny_config()
    weights = random_weights(config, dtype)
    plain, packed = Decoder(config, weights), Decoder(config, weights, prepack=True)
    hidden = run(plain, tokens(config))
    assert torch.equal(run(packed, tokens(config)), hidden)
    assert torch.equal(packed.logits(hidden), plain.logits(hidden))
    assert hidden.shape == (LENGTH, config.hidden_size)
    assert plain.logits(hidden[:3]).shape == (3, config.vocab_size)


def test_a_later_token_changes_nothing_before_it() -> None:
    config = tiny_config()
    decoder = Decoder(config, random_weights(config, torch.float32))
    first, second = tokens(config), tokens(config)
    second[-1] = (second[-1] + 1) % config.vocab_size
    changed = (run(decoder, first) != run(decoder, second)).any(dim=1)
    assert changed.tolist() == [False] * (LENGTH - 1) + [True]


def test_each_site_is_offered_to_the_adapters_once() -> None:
    config = tiny_config()
    decoder, recorder = Decoder(config, random_weights(config, torch.float32)), Recorder()
    hidden = run(decoder, tokens(config), lora=recorder)
    decoder.logits(hidden, recorder)
    inner = [site for site in SITE_MODULES if site != UNEMBED]
    assert sorted(recorder.calls) == sorted(
        [(site, layer) for site in inner for layer in range(config.num_layers)] + [(UNEMBED, 0)]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_checkpointing_changes_no_bit(dtype: torch.dtype) -> None:
    config = tiny_config()
    decoder = Decoder(config, random_weights(config, dtype))
    found = []
    for checkpoint_layers in (False, True):
        recorder = Recorder()
        hidden = run(decoder, tokens(config), lora=recorder, checkpoint_layers=checkpoint_layers)
        (gradient,) = torch.autograd.grad(decoder.logits(hidden, recorder).float().logsumexp(-1).sum(), recorder.factor)
        found.append((hidden.detach(), gradient))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert found[0][1] != 0


def test_gradients_equal_those_in_double_precision() -> None:
    """Float32 goes through kernels with derivatives of their own; float64 through plain products."""
    config = tiny_config()
    weights = random_weights(config, torch.float32)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        decoder, recorder = Decoder(config, {name: w.to(dtype) for name, w in weights.items()}), Recorder()
        hidden = run(decoder, tokens(config), lora=recorder)
        gradients.append(torch.autograd.grad(decoder.logits(hidden, recorder).logsumexp(-1).sum(), recorder.factor)[0].double())
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=0)


def test_frozen_weights_take_no_gradient() -> None:
    config = tiny_config()
    decoder = Decoder(config, random_weights(config, torch.float32))
    assert not run(decoder, tokens(config)).requires_grad
