"""`plait plan`: the smallest cluster on which jobs keep their bounds."""

from typing import TYPE_CHECKING, Annotated

import typer

from plait.types.errors import ConfigError

if TYPE_CHECKING:
    from plait.simulation.job_scenario import JobScenario
    from plait.simulation.plan import Plan


def plan(
    jobs: Annotated[str, typer.Option("--jobs", help="A scenario of kind jobs: a TOML file or a shipped one's name.")],
    slo: Annotated[float, typer.Option(help="A job may take so many times as long as alone, waiting included.", min=1.0)] = 1.2,
    share: Annotated[float, typer.Option(help="Of the jobs that have to keep it.", min=0.01, max=1.0)] = 1.0,
    accelerator: Annotated[str | None, typer.Option(help="Devices, instead of the scenario's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Instead of the scenario's.", min=0)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="With a tenth of each job's steps, or of hundreds of jobs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plans as JSON.")] = False,
) -> None:
    """Find the smallest cluster on which jobs keep their bounds.

    For each of the scenario's systems, with what it costs.
    """
    from plait.cli.progress import progress
    from plait.simulation.plan import Wish, on_accelerator, plan_system

    scenario = _load(jobs)
    if accelerator is not None:
        scenario = on_accelerator(scenario, accelerator)
    chosen = scenario.seed if seed is None else seed
    with progress() as tell:
        plans = [
            plan_system(
                scenario, system, Wish(slo, share), chosen, quick, lambda name, devices: tell(f"{name} on {devices} devices", None)
            )
            for system in scenario.systems
        ]
    if as_json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(plans), indent=2).decode())
        return
    _print(scenario, plans, slo, share)


def _load(name: str) -> "JobScenario":
    from plait.simulation.job_scenario import JobScenario
    from plait.simulation.load_scenario import load_scenario

    scenario = load_scenario(name)
    if not isinstance(scenario, JobScenario):
        raise ConfigError(
            f'{name} has kind = "tasks"; a plan is made for jobs.', 'Give a scenario of kind = "jobs"; `plait simulate` lists some.'
        )
    return scenario


def _print(scenario: "JobScenario", plans: "list[Plan]", slo: float, share: float) -> None:
    from plait.cli.table import print_table
    from plait.observe.text import duration, percent

    who = "every job" if share == 1.0 else f"{100 * share:g} % of the jobs"
    print(f"The fewest {scenario.cluster.accelerator} on which {who} ends within {slo:g} times its time alone, waiting included:\n")
    rows = []
    for found in plans:
        if found.num_devices is None or found.makespan_s is None or found.device_hours is None:
            rows.append((found.system, "none", "", "", "", "", ""))
            continue
        cost = "" if found.cost is None else f"{found.cost:,.0f}"
        numbers = (f"{found.num_devices:,}", f"{found.device_hours:,.0f}", cost, duration(found.makespan_s))
        rows.append((found.system, *numbers, percent(found.cluster_utilisation), f"{found.worst_slowdown:.2f}"))
    columns = ("system", "devices", "device-hours", "cost", "all done after", "busy", "slowdown")
    print_table(columns, rows, "There are no systems.")
    for found in plans:
        if found.num_devices is None:
            print(f"\n{found.system}: not even {max(found.tried):,} devices are enough, on which all jobs run at once.")
