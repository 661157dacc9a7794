"""What the machine could do at best, measured here and now, and the time a workload would take at that.

The roofline of a pass is the longer of two times: its multiplications at the highest rate found for large products of the dtype,
and the bytes of weights and cache it must read at the highest rate found for reading memory.
"""

import time
from collections.abc import Callable
from dataclasses import astuple, dataclass

import torch

from benchmarks.engine_workload import Workload
from plait.models.kernels import make_linear
from plait.types.model import ModelConfig

READ_BYTES = 1 << 29
"""Larger than any cache."""
NUM_TRIES = 5
LARGE_SHAPES = ((512, 576, 3072), (1024, 2048, 2048))
"""(rows, inputs, outputs) of products that reach a processor's highest rate."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Of one device and dtype."""

    bytes_per_s: float
    flops_per_s: float
    decode_flops_per_s: float
    """Reached by the linear layers alone at 32 rows, weights coming from memory."""

    def best_of(self, other: "Roofline") -> "Roofline":
        """The higher of two measurements: whatever else ran at the time can only have lowered them."""
        return Roofline(*(max(pair) for pair in zip(astuple(self), astuple(other), strict=True)))

    def tokens_per_s(self, config: ModelConfig, workload: Workload, bytes_per_value: int) -> float:
        """Of a whole workload: prompts computed in large passes, then `batch` tokens a pass."""
        cost = PassCost(config, workload, bytes_per_value)
        num_passes = workload.new_tokens * workload.num_requests / workload.batch
        prefill_s = workload.num_prompt_tokens * cost.prefill_row_flops / self.flops_per_s
        decode_s = num_passes * max(cost.decode_flops / self.flops_per_s, cost.decode_bytes / self.bytes_per_s)
        return workload.num_new_tokens / (prefill_s + decode_s)


class PassCost:
    """Floating-point operations and bytes of one decode pass over the whole batch."""

    def __init__(self, config: ModelConfig, workload: Workload, bytes_per_value: int) -> None:
        embedding = config.vocab_size * config.hidden_size
        layers = config.num_parameters - embedding * (1 if config.tied_embeddings else 2)
        adapter = workload.adapter_parameters(config) if workload.num_adapters else 0
        context = workload.prompt_tokens + workload.new_tokens / 2
        attention = 4 * config.num_layers * config.num_heads * config.head_dim * context
        self.prefill_row_flops = 2 * (layers + adapter) + attention / 2
        self.decode_flops = workload.batch * (2 * (layers + embedding + adapter) + attention)
        cache_bytes = workload.batch * context * config.cache_bytes_per_token(bytes_per_value)
        self.decode_bytes = bytes_per_value * (layers + embedding + workload.num_adapters * adapter) + cache_bytes


def measure_roofline(config: ModelConfig, dtype: torch.dtype) -> Roofline:
    """On the CPU, with the threads that torch has been given."""
    return Roofline(_read_rate(), max(_product_rate(dtype, *shape) for shape in LARGE_SHAPES), _decode_rate(config, dtype))


def _read_rate() -> float:
    data = torch.ones(READ_BYTES // 4)
    return READ_BYTES / _fastest_s(data.sum)


@torch.inference_mode()
def _product_rate(dtype: torch.dtype, rows: int, inputs: int, outputs: int) -> float:
    x, weight = torch.randn(rows, inputs).to(dtype), torch.randn(outputs, inputs).to(dtype)
    linear = make_linear(weight, None, prepack=True)
    return 2 * rows * inputs * outputs / _fastest_s(lambda: linear(x))


@torch.inference_mode()
def _decode_rate(config: ModelConfig, dtype: torch.dtype, rows: int = 32, num_layers: int = 10) -> float:
    """Over several layers' weights in turn, so that each comes from memory as in a model."""
    hidden, inner, heads = config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim
    qkv = heads + 2 * config.num_kv_heads * config.head_dim
    shapes = [(hidden, qkv), (heads, hidden), (hidden, 2 * inner), (inner, hidden)]
    inputs = {size: torch.randn(rows, size).to(dtype) for size in {hidden, inner, heads}}
    layers = [(i, make_linear(torch.randn(o, i).to(dtype), None, prepack=True)) for _ in range(num_layers) for i, o in shapes]
    flops = 2 * rows * num_layers * sum(i * o for i, o in shapes)
    return flops / _fastest_s(lambda: [linear(inputs[i]) for i, linear in layers])


def _fastest_s(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(NUM_TRIES):
        start_s = time.perf_counter()
        work()
        times.append(time.perf_counter() - start_s)
    return min(times)
