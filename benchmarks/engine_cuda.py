"""Decoding on a GPU: a model of Qwen3-8B's shape with random weights, 64 adapters of rank 16, as a share of the memory roofline.

Each decode pass must read all weights, the adapters of the batch and the cache; the roofline is the time that takes at the rate
measured for a copy. Only passes count: prompts and sampling have their own cost, which the CPU benchmark includes.
"""

from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from benchmarks.common import headline
from benchmarks.engine_workload import ALL_LINEAR, RANK, Workload
from benchmarks.roofline import PassCost
from plait.engine.attention import DecodeAttention
from plait.lora.fused import FusedAdapter
from plait.lora.mix import mix_adapters
from plait.lora.modules import adapter_shapes
from plait.lora.stack import StackedAdapters
from plait.models.decoder import Decoder
from plait.models.tensor_names import tensor_shapes
from plait.types.lora import LoraConfig
from plait.types.model import ModelConfig, RopeScaling

QWEN3_8B = ModelConfig(
    family="qwen3", vocab_size=151_936, hidden_size=4096, intermediate_size=12_288, num_layers=36, num_heads=32, num_kv_heads=8,
    head_dim=128, rms_norm_epsilon=1e-6, rope_theta=1e6, rope_scaling=RopeScaling(), tied_embeddings=False,
    max_context_tokens=40_960, qk_norm=True,
)  # fmt: skip
NUM_ADAPTERS = 64
CONTEXT_TOKENS = 512
NUM_PASSES = 20
COPY_BYTES = 1 << 32
GOAL = 0.5
DTYPE = torch.bfloat16


def run_on_cuda(console: Console, is_quick: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    if not torch.cuda.is_available():
        note = "torch sees no CUDA device"
        console.print(f"{note}: nothing was run")
        return [], {"memory_roofline_share": headline(None, GOAL, "share", note)}
    bytes_per_s = _copy_rate()
    console.print(f"{torch.cuda.get_device_name()}: memory {bytes_per_s / 1e9:.0f} GB/s")
    decoder = Decoder(QWEN3_8B, {name: _random(shape) for name, shape in tensor_shapes(QWEN3_8B).items()})
    stacked = StackedAdapters([_adapter(index) for index in range(NUM_ADAPTERS)])
    settings = [(64, NUM_ADAPTERS)] if is_quick else [(1, 0), (64, 0), (64, NUM_ADAPTERS), (128, NUM_ADAPTERS)]
    rows = [_measure(decoder, stacked, batch, num_adapters, bytes_per_s) for batch, num_adapters in settings]
    for row in rows:
        console.print(row)
    best = max(row["roofline_share"] for row in rows if row["adapters"])
    return rows, {"memory_roofline_share": headline(best, GOAL, "share", f"{NUM_ADAPTERS} adapters of rank {RANK}")}


def _random(shape: tuple[int, ...]) -> Tensor:
    if len(shape) == 1:
        return torch.ones(shape, dtype=DTYPE, device="cuda")
    return torch.randn(shape, dtype=DTYPE, device="cuda") * shape[-1] ** -0.5


def _adapter(index: int) -> FusedAdapter:
    lora = LoraConfig(rank=RANK, alpha=2 * RANK, target_modules=ALL_LINEAR, seed=index)
    return FusedAdapter(lora, {n: _random(s) for n, s in adapter_shapes(QWEN3_8B, lora).items()}, QWEN3_8B, DTYPE)


@torch.inference_mode()
def _measure(decoder: Decoder, stacked: StackedAdapters, batch: int, num_adapters: int, bytes_per_s: float) -> dict[str, Any]:
    config = decoder.config
    cache = torch.zeros(
        config.num_layers, 2, batch, config.num_kv_heads, CONTEXT_TOKENS, config.head_dim, dtype=DTYPE, device="cuda"
    )
    rows_R = torch.arange(batch, device="cuda")
    tokens_R, positions_R = rows_R + 100, torch.full((batch,), CONTEXT_TOKENS - 1, device="cuda")
    lora = mix_adapters(stacked, rows_R % num_adapters) if num_adapters else None

    def decode() -> None:
        attention = DecodeAttention(cache, slice(0, batch), rows_R, positions_R, CONTEXT_TOKENS)
        decoder.logits(decoder.forward(tokens_R, positions_R, attention, lora), lora)

    pass_s = _seconds(decode, NUM_PASSES)
    workload = Workload(batch, num_adapters, batch, prompt_tokens=CONTEXT_TOKENS, new_tokens=0)
    bound_s = PassCost(config, workload, 2).decode_bytes / bytes_per_s
    return {
        "system": "plait", "dtype": "bfloat16", "device": torch.cuda.get_device_name(), "batch": batch, "adapters": num_adapters,
        "pass_s": pass_s, "tokens_per_s": batch / pass_s, "roofline_share": bound_s / pass_s,
    }  # fmt: skip


def _copy_rate() -> float:
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / _seconds(lambda: target.copy_(source), 10)


def _seconds(work: Any, num_calls: int) -> float:
    """Of one call, on the device's own clock."""
    work()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(num_calls):
        work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000 / num_calls
