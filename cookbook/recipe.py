"""One recipe as it is run here: its module and arguments as on a user's command line, and the outcome that is expected."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cookbook.outcome import Expectation

GRAD_NORM = "grad_norm"
"""What `plait serve` reports of every optimizer step, and most recipes log."""


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str
    module: str
    """Under tinker_cookbook.recipes."""
    arguments: Mapping[str, object]
    num_steps: int
    expectations: tuple[Expectation, ...] = ()
    shown: tuple[str, ...] = (GRAD_NORM,)
    """Metrics whose last values the table shows."""
    step_metric: str = GRAD_NORM
    """In the rows of steps that were really done."""
    starts_from: str | None = None
    """Recipe whose last checkpoint this one resumes from, as if it had been its own."""
    kill_at_step: int | None = None
    """Killed once so many steps are done, then started again to resume."""
    is_quick: bool = False
    limit_s: float = 600.0
    environment: Mapping[str, str] = field(default_factory=dict)
