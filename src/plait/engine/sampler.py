"""Draw one token a row, with noise that depends on (seed, position) alone.

With batch invariance a two-level inverse distribution is exact and cheapest. Without it, Gumbel noise is used: rounding flips
a near-tie there about ten times less often.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from plait.engine.noise import gumbel, uniform
from plait.models.logprobs import scaled_logprobs
from plait.types.sampling import SamplingParams

BLOCK_TOKENS = 256
"""The inverse distribution first finds a block of so many tokens, then the token in it."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A log-probability that is not finite means that the row's logits were not."""

    tokens_R: list[int]
    logprobs_R: list[float]


class Sampler:
    """`use_gumbel` chooses the noise for machines without batch invariance."""

    def __init__(self, use_gumbel: bool = False) -> None:
        self.use_gumbel = use_gumbel

    def draw(self, logits_RV: Tensor, params_R: Sequence[SamplingParams], positions_R: Sequence[int]) -> Draw:
        """Tokens and their log-probabilities under the distribution drawn from (greedy: at temperature 1).

        `positions_R` are the absolute positions of the tokens drawn.
        """
        temperatures = [p.temperature if p.temperature > 0 else 1.0 for p in params_R]
        temperature_R1 = torch.tensor(temperatures, dtype=torch.float32, device=logits_RV.device)[:, None]
        logprobs_RV = scaled_logprobs(logits_RV, temperature_R1)
        for row, params in enumerate(params_R):
            if params.temperature > 0 and (params.top_p < 1 or params.top_k > 0):
                logprobs_RV[row] = truncate(logprobs_RV[row], params.top_p, params.top_k)
        tokens_R = self._choose(logprobs_RV, params_R, positions_R)
        chosen = logprobs_RV.gather(1, tokens_R[:, None])[:, 0]
        return Draw(tokens_R.tolist(), chosen.tolist())

    def _choose(self, logprobs_RV: Tensor, params_R: Sequence[SamplingParams], positions_R: Sequence[int]) -> Tensor:
        is_greedy = [p.temperature == 0 for p in params_R]
        if all(is_greedy):
            return logprobs_RV.argmax(dim=-1)
        if self.use_gumbel:
            tokens_R = gumbel_argmax(logprobs_RV, params_R, positions_R)
        else:
            seeds_R = np.array([p.seed for p in params_R], np.uint64)
            tokens_R = inverse_distribution(logprobs_RV.exp(), uniform(seeds_R, np.array(positions_R, np.uint64)))
        if any(is_greedy):
            tokens_R = torch.where(torch.tensor(is_greedy, device=tokens_R.device), logprobs_RV.argmax(dim=-1), tokens_R)
        return tokens_R


def inverse_distribution(probabilities_RV: Tensor, uniform_R: np.ndarray) -> Tensor:
    """The token whose share of the cumulated probabilities holds u, which lies in (0, 1).

    Never one of probability zero: the first sum above u x total rises there. Probabilities need not sum to one.
    """
    num_rows, vocabulary = probabilities_RV.shape
    missing = -vocabulary % BLOCK_TOKENS
    if missing:
        probabilities_RV = torch.nn.functional.pad(probabilities_RV, (0, missing))
    blocks = probabilities_RV.view(num_rows, -1, BLOCK_TOKENS)
    block_ends = blocks.sum(dim=-1).double().cumsum(dim=-1)
    target = torch.from_numpy(uniform_R).to(block_ends.device)[:, None] * block_ends[:, -1:]
    block = torch.searchsorted(block_ends, target, right=True).clamp_(max=block_ends.shape[1] - 1)
    before = torch.where(block > 0, block_ends.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = blocks[torch.arange(num_rows, device=block.device), block[:, 0]]
    token = torch.searchsorted(inside.double().cumsum(dim=-1), target - before, right=True)
    # A block's sum is rounded otherwise than its running sum, which may end a little below the target.
    last_possible = BLOCK_TOKENS - 1 - (inside > 0).flip(-1).int().argmax(dim=-1, keepdim=True)
    # The last bound is for rows that are not numbers; their log-probability tells.
    return (block * BLOCK_TOKENS + torch.minimum(token, last_possible))[:, 0].clamp(max=vocabulary - 1)


def gumbel_argmax(logprobs_RV: Tensor, params_R: Sequence[SamplingParams], positions_R: Sequence[int]) -> Tensor:
    """The argmax of log-probabilities plus Gumbel noise is a draw from the distribution (Maddison et al., arXiv 1411.0030)."""
    vocabulary = logprobs_RV.shape[1]
    noise = np.stack([gumbel(p.seed, position, vocabulary) for p, position in zip(params_R, positions_R, strict=True)])
    return (logprobs_RV + torch.from_numpy(noise).to(logprobs_RV.device)).argmax(dim=-1)


def truncate(logprobs_V: Tensor, top_p: float, top_k: int) -> Tensor:
    """Keep the `top_k` likeliest tokens, then the fewest of those that reach `top_p`; renormalised log-probabilities."""
    order = logprobs_V.argsort(descending=True, stable=True)
    ranked = logprobs_V[order]
    keep = torch.ones_like(ranked, dtype=torch.bool)
    if top_k > 0:
        keep[top_k:] = False
    if top_p < 1:
        mass = torch.where(keep, ranked.double().exp(), 0.0)
        mass = mass / mass.sum()
        keep &= mass.cumsum(0) - mass < top_p
    ranked = ranked.masked_fill(~keep, float("-inf"))
    kept = torch.empty_like(ranked)
    kept[order] = torch.log_softmax(ranked, dim=0)
    return kept
