"""An alarm for rollout and trainer that disagree about the policy. Pure.

A strict task's batch was drawn by the very weights that train on it. Then trainer and sampler log-probabilities are equal to the
bit under batch invariance, and equal up to rounding elsewhere; anything more means stale or wrong weights somewhere.
"""

from plait.observe.events import StepCommitted

MAX_ROUNDING_GAP_NATS = 0.5
"""Largest difference that bfloat16 rounding explains without batch invariance; up to 0.33 was measured."""


def gap_problem(event: StepCommitted, batch_invariant: bool) -> str:
    """What is wrong, or nothing. Batches with staleness are expected to differ."""
    gap = event.logprob_gap_max
    if gap is None or event.staleness_mean:
        return ""
    limit = 0.0 if batch_invariant else MAX_ROUNDING_GAP_NATS
    if gap <= limit:
        return ""
    return (
        f"step {event.step}: trainer and sampler log-probabilities of the same tokens differ by up to {gap:.3g} nats "
        f"(at most {limit:g} is expected): rollout may have used other weights than those that trained"
    )
