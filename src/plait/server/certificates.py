"""Certificates of SDK clients' training data: which policy drew the tokens, as far as the spans tell.

What was sampled from a strict model is stored before it is told, so that it trains after a restart too.
"""

import time
from collections.abc import Mapping, Sequence

from plait.operations.claims import DatumClaim, Span
from plait.operations.provenance import MAX_BYTES, RETENTION_S, Mode, Provenance, SampledSequence, pack_tokens
from plait.server.database import models, sequences
from plait.server.database.database import Database
from plait.server.database.tables import StoredSequence
from plait.server.wire.forward_backward import ForwardBackwardCall, ProvenanceSpan, WireDatum
from plait.types.policy import PolicyVersion

UNCERTIFIED_LOSSES = ("cross_entropy",)
"""Supervised data, and gradients of custom losses: their tokens need not have been sampled here."""


class Certifier:
    """Without a database nothing outlives the process."""

    def __init__(self, database: Database | None = None) -> None:
        self._database = database
        self._provenance = Provenance()
        self._strict: set[str] = set()

    def set_strict(self, model_id: str) -> None:
        """Refuse this model's stale or uncertified batches from now on."""
        self._strict.add(model_id)

    def is_strict(self, model_id: str) -> bool:
        return model_id in self._strict

    async def resume(self) -> None:
        """Know again which models are strict, and what was sampled from them."""
        if self._database is None:
            return
        for model in await self._database.run(models.live_models):
            if (model.user_metadata or {}).get("policy") == Mode.STRICT:
                self.set_strict(model.model_id)
        now_s, now_monotonic_s = time.time(), time.monotonic()
        for row in await self._database.run(sequences.sequences_since, now_s - RETENTION_S, MAX_BYTES):
            policy = PolicyVersion(row.tenant_id, row.model_id, row.version)
            age_s = max(0.0, now_s - row.sampled_s)
            self._provenance.record(
                row.sequence_id,
                SampledSequence(row.tenant_id, row.session_id, policy, row.num_prompt_tokens, row.tokens, now_monotonic_s - age_s),
            )

    async def record(self, sampled: Mapping[str, SampledSequence]) -> None:
        """Sequences were sampled just now. Raises DatabaseError if what must outlive the process cannot be stored."""
        for sequence_id, sequence in sampled.items():
            self._provenance.record(sequence_id, sequence)
        rows = [_row(name, sequence) for name, sequence in sampled.items() if self.is_strict(sequence.policy.task)]
        if rows and self._database is not None:
            await self._database.run(sequences.put_sequences, rows)

    async def drop_old(self) -> None:
        """In the database."""
        if self._database is not None:
            await self._database.run(sequences.drop_sequences, time.time() - RETENTION_S)

    def expire(self) -> None:
        self._provenance.expire(time.monotonic())

    def certify(self, call: ForwardBackwardCall, latest: PolicyVersion, model_id: str) -> dict[str, float]:
        """Staleness metrics of the batch; empty if nothing is known of it. Raises ProvenanceError."""
        is_strict = model_id in self._strict and call.loss_fn not in UNCERTIFIED_LOSSES and not call.forward_only
        if not is_strict and not any(datum.loss_fn_input_spans for datum in call.datums):
            return {}
        claims = [_claim(datum) for datum in call.datums]
        certificate = self._provenance.certify(claims, latest, Mode.STRICT if is_strict else Mode.RECORDED)
        return {
            "staleness:mean": certificate.mean_staleness,
            "staleness:max": float(certificate.max_staleness),
            "num_uncertified_tokens:sum": float(certificate.num_unknown_tokens),
        }


def sampled_now(
    tenant_id: str, session_id: str, policy: PolicyVersion, num_prompt_tokens: int, tokens: Sequence[int]
) -> SampledSequence:
    return SampledSequence(tenant_id, session_id, policy, num_prompt_tokens, pack_tokens(tokens), time.monotonic())


def _row(sequence_id: str, sequence: SampledSequence) -> StoredSequence:
    return StoredSequence(
        sequence_id=sequence_id, tenant_id=sequence.tenant_id, session_id=sequence.session_id, model_id=sequence.policy.task,
        version=sequence.policy.version, num_prompt_tokens=sequence.num_prompt_tokens, tokens=sequence.tokens,
        sampled_s=time.time(),
    )  # fmt: skip


def _claim(datum: WireDatum) -> DatumClaim:
    targets = datum.inputs.get("target_tokens")
    factor = datum.inputs.get("advantages", datum.inputs.get("weights"))
    num_positions = len(targets) if targets is not None else len(datum.tokens)
    flat = factor is not None and factor.ndim == 1
    trains = (factor != 0).tolist() if factor is not None and flat else [True] * num_positions
    tokens = targets.tolist() if targets is not None and targets.ndim == 1 else None
    return DatumClaim(tokens, trains, tuple(_span(span) for span in datum.loss_fn_input_spans))


def _span(span: ProvenanceSpan) -> Span:
    return Span(span.sequence_id, span.offset, span.length, span.kind == "sampled")
