"""The systems that MARLaaS and Seer are compared with, as settings of a scenario: a row each."""

from plait.simulation.scenario import TaskSystem

PLAIT = TaskSystem(name="plait")
MARLAAS_SYSTEMS = (
    PLAIT,
    TaskSystem(name="sequential", sharing="one_at_a_time", layout="shared"),
    TaskSystem(name="disaggregated", sharing="one_at_a_time"),
    TaskSystem(name="synchronous multi-LoRA", sharing="rounds", layout="shared", staged=True),
    TaskSystem(name="without async", sharing="rounds"),
    TaskSystem(name="without multi-LoRA", scheduler="exclusive"),
)
SEER_SYSTEMS = (
    TaskSystem(name="pinned groups", scheduler="pinned", engine="preempting"),
    TaskSystem(name="+ divided", scheduler="divided"),
    TaskSystem(name="+ context"),
    TaskSystem(name="+ drafting", engine="drafting"),
    TaskSystem(name="oracle", knows_lengths=True),
    TaskSystem(name="partial rollout", scheduler="pinned", engine="preempting", over_issue=2),
)
"""The first is how synchronous frameworks roll out; the next three add one mechanism each."""
