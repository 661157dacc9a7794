"""The way in: a scenario, a seed, and what came out. The same three give the same result, to the byte."""

from collections.abc import Callable, Sequence

from plait.simulation.job_results import OnTime, simulate_job_systems
from plait.simulation.job_scenario import JobScenario
from plait.simulation.lasting import lasting
from plait.simulation.load_scenario import Scenario
from plait.simulation.measured_model import profile_notes
from plait.simulation.paper_figures import compare
from plait.simulation.results import ScenarioResult
from plait.simulation.task_results import Kinds, kinds_of, num_steps, simulate_tasks

OnProgress = Callable[[str, float | None], None]
"""(What is under way, the share that is done; None where nobody knows how much there is)"""


def simulate(
    scenario: Scenario, name: str, seed: int | None = None, is_quick: bool = False, on_progress: OnProgress | None = None,
    kinds: Kinds | None = None,
) -> ScenarioResult:  # fmt: skip
    """`seed`: instead of the scenario's. `is_quick`: with a tenth of the steps, or of hundreds of jobs. `kinds`: of tasks, instead
    of the scenario's."""
    chosen = scenario.seed if seed is None else seed
    tell = on_progress or (lambda what, share: None)
    if isinstance(scenario, JobScenario):
        notes: tuple[str, ...] = ()
        systems = simulate_job_systems(
            lasting(scenario), chosen, is_quick, _by_system([system.name for system in scenario.systems], tell)
        )
    else:
        notes = profile_notes(scenario)
        tasks = kinds_of(scenario, is_quick) if kinds is None else kinds
        systems = simulate_tasks(scenario, tasks, chosen, _counter(num_steps(scenario, tasks), tell))
    description = "\n\n".join(" ".join(paragraph.split()) for paragraph in scenario.description.split("\n\n"))
    compared = compare(scenario.paper, {system.name: system.figures for system in systems})
    return ScenarioResult(
        name, scenario.kind, scenario.title, description, chosen, is_quick, tuple(systems), (*scenario.assumptions, *notes),
        compared,
    )  # fmt: skip


def _by_system(names: Sequence[str], tell: OnProgress) -> OnTime:
    """One system's jobs after another's."""
    return lambda system, time_s, share: tell(f"{system}, day {time_s / 86_400:.1f}", (names.index(system) + share) / len(names))


def _counter(total: int, tell: OnProgress) -> Callable[[float], None]:
    done = 0.0

    def count(steps: float) -> None:
        nonlocal done
        done += steps
        tell(f"{int(done + 1e-6):,} of {total:,} steps", min(1.0, done / total))

    return count
