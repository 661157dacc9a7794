"""Plait's sampler inside vLLM: the same noise for the same (seed, position), whatever the batch and wherever chunks are cut.

vLLM's own generators depend on how often they were asked, so a cut would change the tokens. This logits processor draws with
`engine.sampler` and leaves vLLM, which is asked to be greedy, no choice but the drawn token. It sees the logits before
temperature and truncation, so log-probabilities are those of the distribution drawn from.

It runs in the process of the engine (`VLLM_ENABLE_V1_MULTIPROCESSING=0`), which reads what was drawn from `DRAWN`. Scheduling
must not be asynchronous: the position of a draw is told by the tokens that the request has so far.
"""

from typing import Any

import torch
from torch import Tensor
from vllm import SamplingParams as VllmParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from plait.engine.sampler import Sampler
from plait.types.sampling import SamplingParams

NAME = "plait"
"""Of the extra argument that holds a request's (id, its number of context tokens)."""
DRAWN: dict[str, dict[int, float]] = {}
"""Request id -> number of tokens before -> log-probability of the token drawn there."""
PARAMS: dict[str, SamplingParams] = {}
"""Of the requests that the engine has."""


class PlaitDrawing(LogitsProcessor):
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._sampler = Sampler(use_gumbel=True)
        self._rows: dict[int, tuple[str, int, list[int]]] = {}
        """Row -> request id, context tokens, and vLLM's own list of what it has drawn."""

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """In vLLM's order: removed, added, moved."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._rows.pop(row, None)
        for row, params, _, drawn in batch_update.added:
            request_id, num_context_tokens = (params.extra_args or {})[NAME]
            self._rows[row] = (request_id, num_context_tokens, drawn)
        for first, second, direction in batch_update.moved:
            moved, other = self._rows.pop(first, None), self._rows.pop(second, None)
            if moved is not None:
                self._rows[second] = moved
            if other is not None and direction == MoveDirectionality.SWAP:
                self._rows[first] = other

    def apply(self, logits: Tensor) -> Tensor:
        rows = [(row, *held) for row, held in sorted(self._rows.items()) if held[0] in PARAMS and row < logits.shape[0]]
        if not rows:
            return logits
        indices_R = torch.tensor([row for row, *_ in rows], device=logits.device)
        params_R = [PARAMS[request_id] for _, request_id, _, _ in rows]
        positions_R = [num_context + len(drawn) for _, _, num_context, drawn in rows]
        draw = self._sampler.draw(logits[indices_R], params_R, positions_R)
        logits[indices_R] = float("-inf")
        logits[indices_R, torch.tensor(draw.tokens_R, device=logits.device)] = 0.0
        for (_, request_id, _, drawn), logprob in zip(rows, draw.logprobs_R, strict=True):
            DRAWN.setdefault(request_id, {})[len(drawn)] = logprob
        return logits


def vllm_params(request_id: str, num_context_tokens: int, max_tokens: int) -> VllmParams:
    """Greedy, to the end: what to draw and when to stop is up to Plait."""
    from vllm.sampling_params import RequestOutputKind

    return VllmParams(
        temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False, output_kind=RequestOutputKind.DELTA,
        extra_args={NAME: (request_id, num_context_tokens)},
    )  # fmt: skip
