"""The head's log-probabilities and derivatives, with and without an adapter on the unembedding, against plain autograd."""

import pytest
import torch

from plait.lora.mix import FusedAdapter, SingleLora
from plait.models.decoder import Decoder
from plait.training import head
from plait.training.head import chunked_logprobs
from plait.types.lora import LoraConfig
from tests.training.tiny import LORA, MODEL, make_adapter, make_decoder

NUM_ROWS = 23
WITHOUT_HEAD = LoraConfig(rank=4, alpha=8.0, target_modules=("q_proj",))


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "CHUNK_ROWS", 5)
    monkeypatch.setattr(head, "PRODUCT_ROWS", 9)
    monkeypatch.setattr(head, "SOFTMAX_ROWS", 4)


def rows() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states, targets, temperatures, and what a loss gives back for each log-probability."""
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(NUM_ROWS, MODEL.hidden_size, generator=generator),
        torch.randint(0, MODEL.vocab_size, (NUM_ROWS,), generator=generator),
        torch.rand(NUM_ROWS, generator=generator) + 0.5,
        torch.randn(NUM_ROWS, generator=generator),
    )


def lora_of(config: LoraConfig) -> SingleLora:
    return SingleLora(FusedAdapter(config, make_adapter(1, config), MODEL, torch.float32))


def plain(
    decoder: Decoder, lora: SingleLora | None, hidden: torch.Tensor, targets: torch.Tensor, temperatures: torch.Tensor
) -> torch.Tensor:
    logits = decoder.logits(hidden, lora) / temperatures[:, None]
    return torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0]


@pytest.mark.parametrize("config", [None, WITHOUT_HEAD, LORA])
def test_values_and_gradients(config: LoraConfig | None) -> None:
    decoder, lora = make_decoder(), None if config is None else lora_of(config)
    hidden, targets, temperatures, given = rows()
    gradients = []
    for function in (plain, chunked_logprobs):
        leaf = hidden.clone().requires_grad_()
        logprobs = function(decoder, lora, leaf, targets, temperatures)
        gradients.append((logprobs.detach(), *torch.autograd.grad(logprobs, leaf, given)))
    for found, expected in zip(*reversed(gradients), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_bits_with_and_without_gradients() -> None:
    decoder = make_decoder(torch.bfloat16)
    hidden, targets, temperatures, _ = rows()
    hidden = hidden.bfloat16()
    with torch.no_grad():
        expected = chunked_logprobs(decoder, None, hidden, targets, temperatures)
    assert torch.equal(chunked_logprobs(decoder, None, hidden.requires_grad_(), targets, temperatures).detach(), expected)


def test_no_rows() -> None:
    hidden, targets, temperatures, _ = (part[:0] for part in rows())
    assert chunked_logprobs(make_decoder(), None, hidden, targets, temperatures).shape == (0,)
