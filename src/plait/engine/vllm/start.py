"""vLLM's engine, started as Plait needs it: in this process, synchronous, with adapters loaded at run time."""

import os
from pathlib import Path
from typing import Any

from plait.engine.vllm.adapters import served_rank
from plait.types.errors import ConfigError

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
"""Set before vLLM is imported."""
MEMORY_SHARE = 0.85
"""Of a GPU's memory that vLLM takes."""


def make_llm(
    model: Path,
    *,
    dtype: str,
    device: str,
    max_rows: int,
    max_context_tokens: int,
    max_rank: int,
    num_adapters: int,
    cache_bytes: int,
) -> Any:
    """Raises ConfigError if vLLM is not installed or does not take the model. On a CPU the cache has `cache_bytes`."""
    os.environ.update(ENVIRONMENT)
    if device == "cpu":
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(max(1, round(cache_bytes / 2**30)))
    try:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine
    except ImportError as error:
        raise ConfigError(f"engine.kind is 'vllm', and it cannot be imported: {error}.", "Install plait[vllm].") from error
    from plait.engine.vllm.drawing import PlaitDrawing

    arguments = EngineArgs(
        model=str(model), tokenizer=str(model), dtype=dtype, enforce_eager=device == "cpu", max_num_seqs=max_rows,
        max_model_len=max_context_tokens, enable_prefix_caching=True, enable_lora=True, max_lora_rank=served_rank(max_rank),
        max_loras=max(1, min(num_adapters, max_rows)), max_cpu_loras=2 * max(1, num_adapters), async_scheduling=False,
        logits_processors=[PlaitDrawing], gpu_memory_utilization=MEMORY_SHARE, disable_log_stats=True,
    )  # fmt: skip
    try:
        return LLMEngine.from_engine_args(arguments)
    except ValueError as error:
        raise ConfigError(f"vLLM does not take model {str(model)!r}: {error}.", "See vLLM's list of supported models.") from error
