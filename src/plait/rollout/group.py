"""Samples of one prompt under one policy version, as their scheduler sees them; and each of them."""

from dataclasses import dataclass, field

from plait.rollout.keyed_heap import KeyedHeap
from plait.rollout.length_estimates import HistoryKey, PromptLengths, Siblings, estimated_tokens, running_maximum
from plait.rollout.request import GenerationRequest
from plait.rollout.routing import GroupKey


@dataclass(slots=True)
class Group:
    key: GroupKey
    number: int
    """Number of arrival."""
    is_alone: bool
    """A request without siblings."""
    history_key: HistoryKey
    history: PromptLengths | None
    most_tokens: int = 0
    """Most new tokens that any of its samples may have."""
    longest_tokens: int = 0
    """Most that any of its samples has drawn."""
    siblings: Siblings = field(default_factory=Siblings)
    """The finished ones."""
    members: set[str] = field(default_factory=set)
    """Samples that wait or run."""
    waiting: KeyedHeap[tuple[int]] = field(default_factory=KeyedHeap)
    """Samples that wait and are not the probe, by number of arrival."""
    probe: str = ""
    """The sample that runs ahead to tell how long the others will be; empty: none is needed any more, or none has come."""

    @property
    def needs_probe(self) -> bool:
        """Nothing tells its length yet."""
        return not self.is_alone and not self.probe and not self.siblings.num and self.history is None

    @property
    def expected_tokens(self) -> float:
        return estimated_tokens(self.siblings, self.history, self.longest_tokens, self.most_tokens)

    @property
    def running_maximum(self) -> float:
        return running_maximum(self.siblings, self.most_tokens)


@dataclass(slots=True)
class Sample:
    """A request, waiting or running."""

    request: GenerationRequest
    number: int
    """Number of arrival."""
    group: Group
    engine: str | None = None
    """Where it runs; None: it waits."""
    budget_tokens: int = 0
    """Of its next chunk, while it waits,"""
    footprint_tokens: int = 0
    """and what that needs of a cache."""
    charged_tokens: int = 0
    """For the chunk that runs."""
    num_tokens_before: int = 0
    """Drawn before the chunk that runs."""
    num_bypasses: int = 0
    """Chunks placed past it while it was next and did not fit."""
    expected: tuple[float, float] | None = None
    """(running maximum, estimate) when it began."""

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def tenant(self) -> str:
        return self.request.policy.tenant
