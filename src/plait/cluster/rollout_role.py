"""The rollout half of a worker: an engine fed by messages."""

import json
from pathlib import Path

from plait.cluster.messages import CancelRequests, Configure, ReleaseCaches, SubmitChunks
from plait.engine.adapters import AdapterStore
from plait.engine.engine import Engine
from plait.engine.sampler import Sampler
from plait.lora.mix import FusedAdapter
from plait.lora.peft_config import parse_peft_config
from plait.lora.peft_format import from_peft_tensors
from plait.models.decoder import Decoder
from plait.models.tokenizer import Tokenizer
from plait.state.records import ADAPTER_CONFIG_FILE, ADAPTER_FILE
from plait.state.tensor_file import read_tensors
from plait.types.chunks import ChunkResult
from plait.types.policy import AdapterRef

KEPT_VERSIONS_PER_TASK = 2
"""Idle adapter versions kept in memory, for each task: the newest, and the one an evaluation may still ask for."""


class RolloutRole:
    def __init__(self, settings: Configure, decoder: Decoder, base_digest: str, batch_invariant: bool) -> None:
        tokenizer = Tokenizer.load(Path(settings.model_path))
        self.engine = Engine(
            decoder,
            AdapterStore(lambda ref: load_adapter(ref, decoder), KEPT_VERSIONS_PER_TASK * settings.num_tasks),
            base_digest,
            max_rows=settings.max_rows,
            slot_tokens=settings.slot_tokens,
            pool_tokens=settings.pool_tokens,
            max_context_tokens=settings.max_context_tokens,
            sampler=Sampler(use_gumbel=not batch_invariant),
            decode=tokenizer.decode,
        )

    def handle(self, message: SubmitChunks | CancelRequests | ReleaseCaches) -> None:
        match message:
            case SubmitChunks(chunks):
                for chunk in chunks:
                    self.engine.submit(chunk)
            case CancelRequests(request_ids):
                for request_id in request_ids:
                    self.engine.cancel(request_id)
            case ReleaseCaches(handles):
                for handle in handles:
                    self.engine.release(handle)

    @property
    def has_work(self) -> bool:
        return not self.engine.is_idle

    def work(self) -> tuple[list[ChunkResult], int, int]:
        """One engine step: results, tokens decoded, rows decoded."""
        before = self.engine.num_decoded_tokens
        results = self.engine.step()
        return results, self.engine.num_decoded_tokens - before, self.engine.num_decoded_rows


def load_adapter(ref: AdapterRef, decoder: Decoder) -> FusedAdapter:
    """Read a version's PEFT folder, check its digest, and lay it out for the decoder."""
    folder = Path(ref.path)
    stored = read_tensors(folder / ADAPTER_FILE, ref.digest, "torch")
    lora = parse_peft_config(json.loads((folder / ADAPTER_CONFIG_FILE).read_text()))
    tensors = from_peft_tensors(stored, decoder.config, lora)
    return FusedAdapter(lora, {name: t.to(decoder.device) for name, t in tensors.items()}, decoder.config, decoder.dtype)
