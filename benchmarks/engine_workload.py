"""The generations that every engine is asked for."""

from dataclasses import dataclass

import torch
from torch import Tensor

from plait.lora.initial import pristine_adapter
from plait.lora.modules import adapter_shapes
from plait.types.lora import LoraConfig
from plait.types.model import ModelConfig

ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
RANK = 16
B_SCALE = 0.01
"""Standard deviation of B: an adapter that changes what is said, and leaves logits of their size."""


@dataclass(frozen=True, slots=True)
class Workload:
    """`num_requests` prompts of random tokens, each with `new_tokens` sampled at temperature 1; request r has adapter
    r modulo `num_adapters`, or none."""

    batch: int
    num_adapters: int
    num_requests: int
    prompt_tokens: int = 16
    new_tokens: int = 64

    @property
    def num_new_tokens(self) -> int:
        return self.num_requests * self.new_tokens

    @property
    def num_prompt_tokens(self) -> int:
        return self.num_requests * self.prompt_tokens

    def prompts(self, vocab_size: int) -> list[list[int]]:
        """No two begin alike, so that no engine can share them."""
        generator = torch.Generator().manual_seed(self.num_requests)
        prompts: list[list[int]] = torch.randint(
            0, vocab_size, (self.num_requests, self.prompt_tokens), generator=generator
        ).tolist()
        return [[index, *prompt[1:]] for index, prompt in enumerate(prompts)]

    def check(self, num_tokens: int) -> None:
        """Raise RuntimeError if an engine drew another number of tokens than it was asked for."""
        if num_tokens != self.num_new_tokens:
            raise RuntimeError(f"{num_tokens} tokens were drawn instead of {self.num_new_tokens}")

    def adapter_parameters(self, config: ModelConfig) -> int:
        return sum(rows * columns for rows, columns in adapter_shapes(config, adapter_config(0)).values())


def adapter_config(index: int) -> LoraConfig:
    return LoraConfig(rank=RANK, alpha=2 * RANK, target_modules=ALL_LINEAR, seed=index)


def adapter_tensors(config: ModelConfig, index: int) -> dict[str, Tensor]:
    """As if trained: B is not zero."""
    generator = torch.Generator().manual_seed(index)
    tensors = pristine_adapter(config, adapter_config(index))
    return {n: B_SCALE * torch.randn(t.shape, generator=generator) if n.endswith(".B") else t for n, t in tensors.items()}
