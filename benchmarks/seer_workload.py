"""Groups of requests whose lengths are forced: long-tailed, and alike within a group. Pure: a seed decides everything.

The shapes are those of Seer's three workloads (arXiv 2511.14617, its table of workloads): size of a group, and mean and greatest
length in proportion, scaled down. Lengths are log-normal; `SHARED_SHARE` of the variance of their logarithms is the group's, which
is what makes siblings tell of each other.
"""

import math
from dataclasses import dataclass

import numpy as np

from plait.models.tokenizer import Tokenizer
from plait.types.messages import Message

PROMPT_TOKENS = 24
SHARED_SHARE = 0.75
SHORTEST_TOKENS = 4
SIGMA = 1.0
"""Standard deviation of the logarithm of a length, before it is clipped: some 5 % reach the greatest length."""


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    group_size: int
    mean_tokens: int
    max_tokens: int
    """Also what requests are allowed, as nobody knows more before they end."""


SHAPES = (Shape("moonlight", 8, 88, 256), Shape("qwen2-vl", 16, 48, 256), Shape("kimi-k2", 8, 100, 256))
"""22 386 of 65 536, 7 615 of 40 960 and 38 959 of 98 304 tokens in the paper."""
FREE_SHAPE = Shape("free", 8, 96, 192)


@dataclass(frozen=True, slots=True)
class Request:
    """`length` is how many tokens it draws; schedulers are not told."""

    group: str
    number: int
    prompt: tuple[int, ...]
    length: int
    tenant: str = "local"

    @property
    def request_id(self) -> str:
        return f"{self.group}/{self.number}"

    @property
    def seed(self) -> int:
        """Also how an engine knows the request."""
        return int(self.group[1:]) * 1000 + self.number


@dataclass(frozen=True, slots=True)
class Workload:
    shape: Shape
    requests: tuple[Request, ...]

    @property
    def num_tokens(self) -> int:
        return sum(request.length for request in self.requests)

    @property
    def longest_tokens(self) -> int:
        """Cache of the longest that any request may become, with its next chunk."""
        return max(len(request.prompt) for request in self.requests) + self.shape.max_tokens

    @property
    def peak_tokens(self) -> int:
        """Cache that all requests need at once at their ends."""
        return sum(len(request.prompt) + request.length for request in self.requests)


def make_workload(shape: Shape, num_groups: int, vocab_size: int, seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    lengths_GS = _lengths(shape, num_groups, rng)
    requests = []
    for group, lengths_S in enumerate(lengths_GS):
        prompt = tuple(int(token) for token in rng.integers(3, vocab_size, PROMPT_TOKENS))
        requests += [Request(f"g{group}", number, prompt, int(length)) for number, length in enumerate(lengths_S)]
    return Workload(shape, tuple(requests))


def free_workload(tokenizer: Tokenizer, num_groups: int) -> Workload:
    """Questions whose answers end as the model likes; `length` is what one may draw, and what the peak need is reckoned from."""
    requests = []
    for group in range(num_groups):
        question = f"What is {17 + 3 * group} + {4 + 5 * group}? Explain it step by step, then give the number."
        prompt = tokenizer.render_prompt([Message("user", question)])
        requests += [Request(f"g{group}", number, prompt, FREE_SHAPE.mean_tokens) for number in range(FREE_SHAPE.group_size)]
    return Workload(FREE_SHAPE, tuple(requests))


def _lengths(shape: Shape, num_groups: int, rng: "np.random.Generator") -> "np.ndarray":
    """[groups, samples], scaled so that their mean is the shape's once they are clipped."""
    group_G1 = rng.standard_normal((num_groups, 1)) * math.sqrt(SHARED_SHARE)
    own_GS = rng.standard_normal((num_groups, shape.group_size)) * math.sqrt(1 - SHARED_SHARE)
    relative_GS = np.exp(SIGMA * (group_G1 + own_GS))
    low, high = 0.0, float(shape.max_tokens)
    for _ in range(40):
        middle = (low + high) / 2
        is_short = _clipped(shape, middle * relative_GS).mean() < shape.mean_tokens
        low, high = (middle, high) if is_short else (low, middle)
    return _clipped(shape, high * relative_GS)


def _clipped(shape: Shape, lengths_GS: "np.ndarray") -> "np.ndarray":
    return np.clip(lengths_GS.round(), SHORTEST_TOKENS, shape.max_tokens).astype(int)
