"""An adapter that a trainer has, as `TrainerRouter` keeps it."""

from dataclasses import dataclass, field

from plait.cluster.model_messages import DiscardGradients
from plait.cluster.trainer_messages import Opening, Work


@dataclass(slots=True)
class RoutedAdapter:
    opening: Opening
    has_gradients: bool = False
    leaves: str = ""
    """The trainer that is to let go of it before it is opened at its home."""
    held: list[Work | DiscardGradients] = field(default_factory=list)
    """For when it is there."""
    num_own_opens: int = 0
    """Openings that moved it, whose answers nobody waits for."""
    open_error: str = ""
