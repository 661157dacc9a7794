"""The rollout half of a worker with vLLM in place of Plait's engine. It scores no prompts and drafts nothing."""

import hashlib
from pathlib import Path

from plait.cluster.messages import CancelRequests, Configure, EngineStats, FromWorker, SubmitChunks
from plait.cluster.model_messages import PromptScored, ScorePrompt
from plait.cluster.rollout_role import KEPT_VERSIONS_PER_TASK, RolloutMessage
from plait.engine.limits import EngineLimits
from plait.engine.vllm.adapters import VllmAdapters
from plait.engine.vllm.engine import VllmEngine
from plait.engine.vllm.start import make_llm
from plait.kv.block_log import BlockNews
from plait.models.hf_config import read_json
from plait.models.tokenizer import Tokenizer
from plait.observe import engine_counters as counters
from plait.types.chunks import ChunkResult

DIGEST_BYTES = 2**20
"""Of each end of a file of weights, for the name of the base."""


class VllmRole:
    def __init__(self, settings: Configure, device: str) -> None:
        folder = Path(settings.model_path)
        num_adapters = KEPT_VERSIONS_PER_TASK * settings.num_tasks
        config = read_json(folder / "config.json")
        cached_tokens = settings.slot_tokens + settings.pool_tokens
        llm = make_llm(
            folder, dtype=settings.dtype, device=device, max_rows=settings.max_rows,
            max_context_tokens=settings.max_context_tokens, max_rank=settings.max_lora_rank, num_adapters=num_adapters,
            cache_bytes=cached_tokens * token_bytes(config, settings.dtype),
        )  # fmt: skip
        limits = EngineLimits(int(config["vocab_size"]), settings.max_context_tokens, settings.slot_tokens, has_tokenizer=True)
        self.engine = VllmEngine(llm, VllmAdapters(settings.max_lora_rank), limits, Tokenizer.load(folder).decode)
        self._num_hit_tokens = 0

    def handle(self, message: RolloutMessage) -> list[FromWorker]:
        match message:
            case SubmitChunks(chunks):
                for chunk in chunks:
                    self.engine.submit(chunk)
            case CancelRequests(request_ids):
                for request_id in request_ids:
                    self.engine.cancel(request_id)
            case ScorePrompt():
                problem = "prompts are not scored where engine.kind is 'vllm': use engine.kind = 'plait'"
                return [PromptScored(message.request_id, error=problem, is_user_error=True)]
        return []

    @property
    def has_chunks(self) -> bool:
        return not self.engine.is_idle

    @property
    def has_prompts(self) -> bool:
        return False

    @property
    def has_work(self) -> bool:
        return self.has_chunks

    def work(self) -> tuple[list[ChunkResult], int, int]:
        """One engine step: results, tokens decoded, rows decoded."""
        before = self.engine.num_decoded_tokens
        results = self.engine.step()
        self._num_hit_tokens += sum(result.cached_tokens for result in results)
        return results, self.engine.num_decoded_tokens - before, self.engine.num_decoded_rows

    def drawn(self) -> list[FromWorker]:
        return []

    def news(self) -> tuple[BlockNews, ...]:
        return ()

    def score(self) -> list[PromptScored]:
        return []

    def stats(self, now_s: float) -> EngineStats:
        counts: dict[str, float] = {
            counters.COMPUTED_TOKENS: self.engine.num_prefilled_tokens + self.engine.num_decoded_tokens,
            counters.DECODED_TOKENS: self.engine.num_decoded_tokens,
            counters.HIT_TOKENS["device"]: self._num_hit_tokens,
        }
        return EngineStats(now_s, self.engine.num_rows, 0, counts)


def token_bytes(config: dict[str, int], dtype: str) -> int:
    """Of one token's keys and values in all layers."""
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    width = config.get("num_key_value_heads", heads) * head_dim
    return 2 * config["num_hidden_layers"] * width * (2 if dtype == "bfloat16" else 4)


def folder_digest(folder: Path) -> str:
    """Names a base by sizes and ends of its files: weights of any architecture, and too large to be read through at every start."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted([*folder.glob("*.safetensors"), folder / "config.json"]):
        size = path.stat().st_size
        with path.open("rb") as file:
            digest.update(f"{path.name} {size} ".encode() + file.read(DIGEST_BYTES))
            file.seek(max(0, size - DIGEST_BYTES))
            digest.update(file.read(DIGEST_BYTES))
    return digest.hexdigest()
