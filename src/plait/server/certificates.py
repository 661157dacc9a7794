"""Certificates of SDK clients' training data: which policy drew the tokens, as far as the spans tell."""

import time
from collections.abc import Sequence

from plait.operations.claims import DatumClaim, Span
from plait.operations.provenance import Mode, Provenance, SampledSequence, pack_tokens
from plait.server.wire.forward_backward import ForwardBackwardCall, ProvenanceSpan, WireDatum
from plait.types.policy import PolicyVersion

UNCERTIFIED_LOSSES = ("cross_entropy",)
"""Supervised data, and gradients of custom losses: their tokens need not have been sampled here."""


class Certifier:
    def __init__(self) -> None:
        self._provenance = Provenance()
        self._strict: set[str] = set()

    def set_strict(self, model_id: str) -> None:
        """Refuse this model's stale or uncertified batches from now on."""
        self._strict.add(model_id)

    def is_strict(self, model_id: str) -> bool:
        return model_id in self._strict

    def record(
        self,
        sequence_id: str,
        tenant_id: str,
        session_id: str,
        policy: PolicyVersion,
        num_prompt_tokens: int,
        tokens: Sequence[int],
    ) -> None:
        """A sequence was sampled."""
        sequence = SampledSequence(tenant_id, session_id, policy, num_prompt_tokens, pack_tokens(tokens), time.monotonic())
        self._provenance.record(sequence_id, sequence)

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
