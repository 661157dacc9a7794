"""What the scorer is asked, and what it answers."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plait.engine.noise import uniform
from plait.engine.sampler import inverse_distribution
from plait.types.policy import AdapterRef, PolicyVersion
from plait.types.seeds import derive_seed

NOTHING = -1
"""A target that asks for nothing."""
NO_LOGPROB = -99999.0
"""Beside id 0, where nothing was scored."""


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """L tokens, of which those from `first_position` on (at least 1: nothing tells of the first) are scored at `temperature`."""

    request_id: str
    tokens: tuple[int, ...]
    policy: PolicyVersion
    adapter: AdapterRef | None = None
    temperature: float = 1.0
    """0 stands for 1, as in greedy sampling."""
    first_position: int = 1
    top_k: int = 0
    """So many likeliest tokens at each position too."""
    num_alternatives: int = 0
    """So many tokens drawn at each position, independently."""
    seed: int = 0
    targets_TK: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    """[L - 1, K] or of K = 0: cell [i, j] is scored at position i + 1; `NOTHING`: it is not."""

    @property
    def scaling(self) -> float:
        return self.temperature or 1.0

    def targets_problem(self, vocab_size: int) -> str:
        targets = self.targets_TK
        if targets.shape[1] and targets.shape[0] != len(self.tokens) - 1:
            return f"targets has {targets.shape[0]} rows: it must have one for each of {len(self.tokens)} tokens but the first"
        wrong = targets[(targets != NOTHING) & ((targets < 0) | (targets >= vocab_size))]
        return f"targets holds the id {wrong[0]}: it must be -1 (nothing) or in 0..{vocab_size - 1}" if len(wrong) else ""


@dataclass(slots=True)
class Scores:
    """Log-probabilities are NaN, and ids 0 beside `NO_LOGPROB`, where nothing was scored. An `error` makes all else void."""

    request_id: str
    logprobs_L: NDArray[np.float32]
    top_ids_LK: NDArray[np.int32]
    top_logprobs_LK: NDArray[np.float32]
    target_logprobs_TK: NDArray[np.float32]
    alternative_ids_LN: NDArray[np.int32]
    alternative_logprobs_LN: NDArray[np.float32]
    error: str = ""
    is_user_error: bool = False

    @staticmethod
    def failed(request: ScoreRequest, error: str, is_user_error: bool) -> "Scores":
        """Whose arrays are empty."""
        scores = Scores.empty(ScoreRequest(request.request_id, (), request.policy))
        scores.error, scores.is_user_error = error, is_user_error
        return scores

    @staticmethod
    def empty(request: ScoreRequest) -> "Scores":
        length, top, drawn = len(request.tokens), request.top_k, request.num_alternatives
        return Scores(
            request.request_id,
            np.full(length, np.nan, np.float32),
            np.zeros((length, top), np.int32),
            np.full((length, top), NO_LOGPROB, np.float32),
            np.full(request.targets_TK.shape, np.nan, np.float32),
            np.zeros((length, drawn), np.int32),
            np.full((length, drawn), NO_LOGPROB, np.float32),
        )

    def take(self, request: ScoreRequest, position: int, logprobs_PV: Tensor) -> None:
        """Keep what was asked of the distributions over the tokens at positions [position, position + P)."""
        count = len(logprobs_PV)
        at = slice(position, position + count)
        tokens_P1 = torch.tensor(request.tokens[at], device=logprobs_PV.device)[:, None]
        self.logprobs_L[at] = logprobs_PV.gather(1, tokens_P1)[:, 0].cpu().numpy()
        if request.top_k:
            top = logprobs_PV.topk(request.top_k)
            self.top_ids_LK[at], self.top_logprobs_LK[at] = top.indices.cpu().numpy(), top.values.cpu().numpy()
        if request.targets_TK.shape[1]:
            self._take_targets(request, slice(position - 1, position - 1 + count), logprobs_PV)
        if request.num_alternatives:
            self._draw(request, position, logprobs_PV)

    def _take_targets(self, request: ScoreRequest, cells: slice, logprobs_PV: Tensor) -> None:
        targets_PK = request.targets_TK[cells]
        wanted = torch.from_numpy(targets_PK.astype(np.int64)).clamp(min=0).to(logprobs_PV.device)
        found = logprobs_PV.gather(1, wanted).cpu().numpy()
        self.target_logprobs_TK[cells] = np.where(targets_PK == NOTHING, np.nan, found)

    def _draw(self, request: ScoreRequest, position: int, logprobs_PV: Tensor) -> None:
        probabilities_PV = logprobs_PV.exp()
        positions_P = np.arange(position, position + len(logprobs_PV), dtype=np.uint64)
        for n in range(request.num_alternatives):
            seed = np.uint64(derive_seed("alternative", request.seed, n))
            drawn_P = inverse_distribution(probabilities_PV, uniform(np.full_like(positions_P, seed), positions_P))
            at = slice(position, position + len(logprobs_PV))
            self.alternative_ids_LN[at, n] = drawn_P.cpu().numpy()
            self.alternative_logprobs_LN[at, n] = logprobs_PV.gather(1, drawn_P[:, None])[:, 0].cpu().numpy()
