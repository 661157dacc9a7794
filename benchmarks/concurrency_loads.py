"""Loads: how many clients ask, for how long answers, and how that changes. Each client asks again when it has its answer."""

from dataclasses import dataclass

PROMPT_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Clients:
    number: int
    new_tokens: int


@dataclass(frozen=True, slots=True)
class Phase:
    """Who asks for this share of a load's time."""

    clients: tuple[Clients, ...]
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    phases: tuple[Phase, ...]

    def phase_at(self, share: float) -> Phase:
        """`share` of the load's time has passed."""
        passed = 0.0
        for phase in self.phases:
            passed += phase.share
            if share < passed:
                return phase
        return self.phases[-1]


MANY_SHORT = (Clients(96, 24),)
FEW_LONG = (Clients(6, 512),)
MIXED = (Clients(48, 24), Clients(6, 512))

LOADS = (
    Load("many short", (Phase(MANY_SHORT),)),
    Load("few long", (Phase(FEW_LONG),)),
    Load("mixed", (Phase(MIXED),)),
    Load("changing", (Phase(MANY_SHORT, 0.3), Phase(FEW_LONG, 0.3), Phase(MIXED, 0.2), Phase(MANY_SHORT, 0.2))),
)
