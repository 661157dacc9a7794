"""Which policy drew the tokens that a client trains on: what was sampled, and what the SDK's spans claim of it. Pure.

- A claim about a sequence that is known must be true: within its length, and the very tokens, in both modes.
- Recorded mode measures staleness; what nothing is known of is counted and passes.
- Strict mode certifies: every position that trains was sampled, by the model's latest version.
- Another tenant's sequence is unknown, like one that never was.
- Sequences are kept for `retention_s`, and fewer if they take more than `max_bytes`: the oldest go first.
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from plait.operations.claims import DatumClaim, ProvenanceError, Span, placed_spans
from plait.tasks.gate import check_policies
from plait.types.errors import PolicyError
from plait.types.policy import PolicyVersion

RETENTION_S = 86_400.0
MAX_BYTES = 256 << 20
RECORD_BYTES = 512
"""What a record takes besides its tokens, about."""
TOKEN_BYTES = 4


class Mode(StrEnum):
    RECORDED = "recorded"
    STRICT = "strict"


class SampledSequence(msgspec.Struct, frozen=True):
    tenant_id: str
    session_id: str
    policy: PolicyVersion
    num_prompt_tokens: int
    tokens: bytes
    """As `pack_tokens` gives them."""
    sampled_s: float

    @property
    def num_bytes(self) -> int:
        return len(self.tokens) + RECORD_BYTES


class Certificate(msgspec.Struct, frozen=True):
    """Of positions that train only."""

    num_tokens_by_age: dict[int, int]
    """Age in versions -> sampled tokens of the model's own policy."""
    num_foreign_tokens: int
    """Sampled by another policy of this tenant."""
    num_unknown_tokens: int
    """No span names a known sequence for them."""

    @property
    def mean_staleness(self) -> float:
        """In versions, over sampled tokens of the model's own; 0 of none."""
        total = sum(self.num_tokens_by_age.values())
        return sum(age * count for age, count in self.num_tokens_by_age.items()) / total if total else 0.0

    @property
    def max_staleness(self) -> int:
        return max(self.num_tokens_by_age, default=0)


def pack_tokens(tokens: Sequence[int]) -> bytes:
    """As int32."""
    return array("i", tokens).tobytes()


class Provenance:
    def __init__(self, retention_s: float = RETENTION_S, max_bytes: int = MAX_BYTES) -> None:
        self.retention_s, self.max_bytes = retention_s, max_bytes
        self._sequences: OrderedDict[str, SampledSequence] = OrderedDict()
        self._num_bytes = 0

    def __len__(self) -> int:
        return len(self._sequences)

    def record(self, sequence_id: str, sequence: SampledSequence) -> None:
        """A sequence has been sampled, just now; one of the same id takes the place of the first."""
        old = self._sequences.pop(sequence_id, None)
        self._num_bytes += sequence.num_bytes - (old.num_bytes if old else 0)
        self._sequences[sequence_id] = sequence
        self.expire(sequence.sampled_s)
        while self._num_bytes > self.max_bytes:
            self._drop_oldest()

    def expire(self, now: float) -> None:
        """Let go of what is over its time."""
        while self._sequences and next(iter(self._sequences.values())).sampled_s + self.retention_s <= now:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._num_bytes -= self._sequences.popitem(last=False)[1].num_bytes

    def certify(self, claims: Sequence[DatumClaim], latest: PolicyVersion, mode: Mode) -> Certificate:
        """May these data of `latest.tenant` train the version after `latest`? If not, ProvenanceError names datum and span."""
        by_age: dict[int, int] = {}
        num_foreign = num_unknown = 0
        for index, claim in enumerate(claims):
            if mode == Mode.STRICT:
                _check_certifiable(index, claim)
            if not claim.spans:
                num_unknown += sum(claim.trains)
            for place, span, start, num_training in placed_spans(index, claim):
                targets = None if claim.target_tokens is None else claim.target_tokens[start : start + span.length]
                sequence = self._check_span(place, span, targets, latest, mode)
                if mode == Mode.STRICT and num_training:
                    _check_strict(place, span, sequence, latest)
                if sequence is None or not span.is_sampled:
                    num_unknown += num_training
                elif not _is_own(sequence.policy, latest):
                    num_foreign += num_training
                elif num_training:
                    age = latest.version - sequence.policy.version
                    by_age[age] = by_age.get(age, 0) + num_training
        return Certificate(by_age, num_foreign, num_unknown)

    def _check_span(
        self, place: str, span: Span, target_tokens: Sequence[int] | None, latest: PolicyVersion, mode: Mode
    ) -> SampledSequence | None:
        """The span's sequence, if it is known."""
        sequence = self._sequences.get(span.sequence_id)
        if sequence is None or sequence.tenant_id != latest.tenant:
            if mode == Mode.STRICT:
                raise ProvenanceError(
                    f"{place}: there is no sequence {span.sequence_id!r}, or no more.",
                    f"Name a sequence that was sampled within the last {self.retention_s / 3600:g} hours.",
                )
            return None
        num_tokens = len(sequence.tokens) // TOKEN_BYTES if span.is_sampled else sequence.num_prompt_tokens
        if span.offset + span.length > num_tokens:
            part = "sampled tokens" if span.is_sampled else "prompt"
            raise ProvenanceError(
                f"{place}: offset {span.offset} + length {span.length} is more than the {num_tokens} of the {part} of sequence "
                f"{span.sequence_id!r}.",
                "Span only what was sampled.",
            )
        if span.is_sampled and target_tokens is not None:
            _check_tokens(place, span, sequence, target_tokens)
        if _is_own(sequence.policy, latest) and sequence.policy.version > latest.version:
            raise ProvenanceError(
                f"{place}: policy {sequence.policy} drew sequence {span.sequence_id!r}, and {latest} is the newest that exists.",
                "Sample again.",
            )
        return sequence


def _check_certifiable(index: int, claim: DatumClaim) -> None:
    """Of a datum in strict mode."""
    num_training = sum(claim.trains)
    if num_training and not claim.spans:
        raise ProvenanceError(
            f"datum {index} trains {num_training} positions and has no loss_fn_input_spans.",
            "Strict mode needs them: use Datum.with_provenance.",
        )
    if num_training and claim.target_tokens is None:
        raise ProvenanceError(
            f"datum {index}: target_tokens name several tokens at each position.",
            "Strict mode trains on the tokens that were sampled: give one at each position, or use the recorded mode.",
        )


def _is_own(policy: PolicyVersion, latest: PolicyVersion) -> bool:
    return (policy.tenant, policy.task) == (latest.tenant, latest.task)


def _check_tokens(place: str, span: Span, sequence: SampledSequence, target_tokens: Sequence[int]) -> None:
    first, last = span.offset * TOKEN_BYTES, (span.offset + span.length) * TOKEN_BYTES
    if array("i", sequence.tokens[first:last]).tolist() != list(target_tokens):
        raise ProvenanceError(
            f"{place}: the target_tokens are not those that were sampled as sequence {span.sequence_id!r}.",
            "Train on tokens as they were sampled, or do not claim them as sampled.",
        )


def _check_strict(place: str, span: Span, sequence: SampledSequence | None, latest: PolicyVersion) -> None:
    """Of a span with positions that train."""
    if not span.is_sampled or sequence is None:
        raise ProvenanceError(
            f"{place}: positions of a prompt train.", "In strict mode only sampled tokens may: give the others no advantage."
        )
    try:
        check_policies([sequence.policy], latest, max_staleness=0)
    except PolicyError as error:
        raise ProvenanceError(f"{place}, sequence {span.sequence_id!r}: {error.message}", error.remedy) from error
