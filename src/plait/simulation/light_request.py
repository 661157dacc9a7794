"""Requests whose tokens are only counted: lengths of tens of thousands cost no memory."""

from collections.abc import Sequence
from typing import Any

from plait.rollout.request import GenerationRequest
from plait.types.chunks import Chunk, PullFrom
from plait.types.policy import PolicyVersion
from plait.types.sampling import SamplingParams


class Counted(Sequence[int]):
    """So many zeros. Only as much of a list as lengths need. `prompt` tells different ones apart."""

    __slots__ = ("num", "prompt")

    def __init__(self, num: int, prompt: str = "") -> None:
        self.num, self.prompt = num, prompt

    def __hash__(self) -> int:
        return hash((self.num, self.prompt))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counted) and (self.num, self.prompt) == (other.num, other.prompt)

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: Any) -> Any:
        return Counted(len(range(self.num)[index])) if isinstance(index, slice) else 0

    def grow(self, num: int) -> None:
        self.num += num


def light_request(
    request_id: str, queue: str, policy: PolicyVersion, context_tokens: int, max_new_tokens: int, group: str = "", prompt: str = ""
) -> GenerationRequest:
    """`prompt`: the name of the one that it shares with others; that of its group unless given."""
    context: Any = Counted(context_tokens, prompt or group or request_id)
    tokens: Any = Counted(0)
    return LightRequest(request_id, queue, policy, None, context, SamplingParams(max_new_tokens), group=group, tokens=tokens)


def shared_prompt(request: GenerationRequest) -> str:
    """Its name; empty if the request is the only one that has it."""
    prompt = prompt_of(request.context_tokens, request.group)
    return "" if prompt == request.request_id else prompt


def prompt_of(context_tokens: Sequence[int], group: str) -> str:
    """The name of a context's prompt; that of its group where tokens are not counted only."""
    return context_tokens.prompt if isinstance(context_tokens, Counted) else group


class LightRequest(GenerationRequest):
    """A request whose `context_tokens` and `tokens` are `Counted`."""

    def next_chunk(self, chunk_tokens: int, stretch_tokens: int = 0, pull: PullFrom | None = None) -> Chunk:
        context: Any = Counted(len(self.context_tokens) + len(self.tokens), shared_prompt(self))
        return Chunk(
            self.chunk_id, self.policy, context, self.chunk_budget(chunk_tokens), self.sampling,
            generated_tokens=len(self.tokens), group=self.group, generation=self.request_id,
            stretch_tokens=stretch_tokens, pull=pull,
        )  # fmt: skip

    def drew(self, num_tokens: int) -> None:
        tokens: Any = self.tokens
        tokens.grow(num_tokens)
