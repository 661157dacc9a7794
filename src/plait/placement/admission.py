"""Whether jobs may run together: every one of them, new and old, keeps its slowdown bound.

- Weave's rule first, for it is cheap: a group whose load (phases and a switch before each, over the period) reaches its cycle takes
  nobody.
- Then the co-run is executed twice over many periods: from the phases that the jobs have now, and with all starting at once, since
  jobs of different periods meet in every way sooner or later. The worse of both, with MARGIN, must be within the job's SLO. The
  second is known of jobs like these (`convoys`): then it comes first.
- Only jobs that share a group, directly or through others, are looked at; more than MAX_COUPLED of them are refused.
"""

from collections.abc import Mapping, Sequence

import msgspec

from plait.placement.convoys import Convoys
from plait.placement.corun import NUM_PERIODS, CoRun, Member
from plait.placement.corun_group import Orders
from plait.scheduling.orders import Hrrs

MARGIN = 0.01
"""Of the SLO, kept for what a run longer than the estimate's may add."""
MAX_COUPLED = 10
FIRST_LOOK, FIRST_LOOK_MARGIN = 8, 0.15
"""Who is late by this much after so few periods need not be looked at for longer."""


class Verdict(msgspec.Struct, frozen=True):
    """`slowdowns`: T_co / T_solo by job, empty if they were not needed to refuse."""

    is_admitted: bool
    slowdowns: dict[str, float] = {}
    reason: str = ""


def load_fits(loads: Sequence[float]) -> bool:
    """Weave: skip when load >= cycle."""
    return sum(loads) < 1.0


def judge(members: Sequence[Member], slos: Mapping[str, float], order: Orders = Hrrs, convoys: Convoys | None = None) -> Verdict:
    """`order`: of the groups that they share; `convoys`: what is known, of the same order."""
    if len(members) > MAX_COUPLED:
        return Verdict(False, reason=f"{len(members)} jobs would depend on each other, more than {MAX_COUPLED}")
    convoys = convoys or Convoys(order)
    known = convoys.known(members)
    if known is not None and (late := _late(known, slos)):
        return Verdict(False, reason=late)
    expected, late = _as_now(members, slos, order)
    if not late:
        convoy = convoys.slowdowns(members)
        expected = {job_id: max(value, convoy[job_id]) for job_id, value in expected.items()}
        late = _late(expected, slos)
    return Verdict(not late, expected, late)


def _as_now(members: Sequence[Member], slos: Mapping[str, float], order: Orders) -> tuple[dict[str, float], str]:
    """Slowdowns from the phases that they have, and who is late."""
    run = CoRun(members, order)
    run.until(FIRST_LOOK)
    late = _late(run.slowdowns(), {job_id: slo + FIRST_LOOK_MARGIN for job_id, slo in slos.items()})
    if late:
        return {}, late
    run.until(NUM_PERIODS)
    expected = run.slowdowns()
    return expected, _late(expected, slos)


def _late(expected: Mapping[str, float], slos: Mapping[str, float]) -> str:
    for job_id, slowdown in expected.items():
        if slowdown > max(1.0, slos[job_id] * (1 - MARGIN)):
            return f"job {job_id} would be {slowdown:.2f} times as slow, bound {slos[job_id]:.2f}"
    return ""
