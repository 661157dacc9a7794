"""The slow, obvious engine: one generation at a time, the whole context computed again for every token. The oracle in tests."""

import torch

from plait.engine.sampler import Sampler
from plait.engine.stops import Decode, StopRule
from plait.lora.mix import FusedAdapter, SingleLora
from plait.models.attention import PaddedAttention
from plait.models.decoder import Decoder
from plait.types.sampling import SamplingParams, StopReason


class ReferenceEngine:
    def __init__(self, decoder: Decoder, sampler: Sampler, max_context_tokens: int, decode: Decode | None = None) -> None:
        self.decoder, self.sampler, self.decode, self.max_context_tokens = decoder, sampler, decode, max_context_tokens

    @torch.inference_mode()
    def generate(
        self, context: tuple[int, ...], params: SamplingParams, adapter: FusedAdapter | None = None
    ) -> tuple[tuple[int, ...], tuple[float, ...], StopReason]:
        """New tokens, their log-probabilities, and why it ended."""
        tokens, logprobs = list(context), []
        rule = StopRule(params, (), self.max_context_tokens, self.decode)
        while True:
            draw = self.sampler.draw(self._last_logits(tokens, adapter), [params], [len(tokens)])
            tokens.append(draw.tokens_R[0])
            logprobs.append(draw.logprobs_R[0])
            reason = rule.after(tokens[-1], len(tokens))
            if reason is not None:
                return tuple(tokens[len(context) :]), tuple(logprobs), reason

    def _last_logits(self, tokens: list[int], adapter: FusedAdapter | None) -> torch.Tensor:
        config, device, length = self.decoder.config, self.decoder.device, len(tokens)
        group = config.num_heads // config.num_kv_heads
        attention = PaddedAttention(1, length, group, self.decoder.dtype, device)
        lora = SingleLora(adapter) if adapter else None
        positions = torch.arange(length, device=device)
        hidden = self.decoder.forward(torch.tensor(tokens, device=device), positions, attention, lora)
        return self.decoder.logits(hidden[-1:], lora)
