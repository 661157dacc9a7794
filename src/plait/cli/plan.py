"""`plait plan`: the smallest cluster on which jobs keep their bounds."""

from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.output import check_finite
from plait.types.errors import ConfigError

if TYPE_CHECKING:
    from plait.cli.progress import Tell
    from plait.simulation.job_scenario import JobScenario
    from plait.simulation.plan import Plan, Wish


def plan(
    scenario: Annotated[
        str | None, typer.Argument(help="A scenario of kind jobs: a TOML file or a shipped one's name.", show_default=False)
    ] = None,
    jobs: Annotated[str | None, typer.Option("--jobs", help="The same.", metavar="SCENARIO")] = None,
    slo: Annotated[
        float | None,
        typer.Option(
            help="A job may take so many times as long as alone, waiting included; without it, each job's own slo.", min=1.0
        ),
    ] = None,
    share: Annotated[float, typer.Option(help="Of the jobs that have to keep it.", min=0.01, max=1.0)] = 1.0,
    accelerator: Annotated[str | None, typer.Option(help="Devices, instead of the scenario's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Instead of the scenario's.", min=0)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="With a tenth of each job's steps, or of hundreds of jobs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plans as JSON.")] = False,
) -> None:
    """Find the smallest cluster on which jobs keep their bounds.

    For each of the scenario's systems, with what it costs. The scenario's own number of devices does not count, unless its jobs are
    as many as fill them for some days.
    """
    from plait.cli.progress import progress
    from plait.simulation.plan import Wish

    check_finite("--slo", slo)
    check_finite("--share", share)
    loaded, wish = _load(_name(scenario, jobs), accelerator), Wish(slo, share)
    with progress() as tell:
        plans = _plans(loaded, wish, loaded.seed if seed is None else seed, quick, tell)
    if as_json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(plans), indent=2).decode())
        return
    _print(loaded, plans, wish, quick)


def _plans(scenario: "JobScenario", wish: "Wish", seed: int, is_quick: bool, tell: "Tell") -> "list[Plan]":
    from plait.simulation.plan import plan_system

    def on_try(name: str, devices: int, done: float) -> None:
        tell(f"{name} on {devices:,} devices", done)

    return [plan_system(scenario, system, wish, seed, is_quick, on_try) for system in scenario.systems]


def _name(scenario: str | None, jobs: str | None) -> str:
    if scenario is not None and jobs is not None:
        raise ConfigError(f'"{scenario}" and --jobs "{jobs}": a plan is made for one scenario.', "Leave one of them out.")
    name = scenario or jobs
    if not name:
        raise ConfigError(
            "a plan needs a scenario of jobs.", "Name a TOML file or a shipped one, as `plait plan sixteen-jobs --quick`."
        )
    return name


def _load(name: str, accelerator: str | None) -> "JobScenario":
    from plait.simulation.check_scenario import check_scenario
    from plait.simulation.job_room import with_room
    from plait.simulation.job_scenario import JobScenario
    from plait.simulation.load_scenario import load_scenario
    from plait.simulation.plan import on_accelerator

    scenario = load_scenario(name, is_any_size=True)
    if not isinstance(scenario, JobScenario):
        raise ConfigError(
            f'{name} has kind = "tasks"; a plan is made for jobs.', 'Give a scenario of kind = "jobs"; `plait simulate` lists some.'
        )
    if accelerator is None:
        return scenario
    moved = on_accelerator(scenario, accelerator)
    if problems := check_scenario(with_room(moved)):
        raise ConfigError(f"{name} with --accelerator {accelerator}: {problems[0][1]}.", "Choose another one, or change the jobs.")
    return moved


def _print(scenario: "JobScenario", plans: "list[Plan]", wish: "Wish", is_quick: bool) -> None:
    from plait.cli.table import print_table
    from plait.observe.text import duration, percent

    who = "every job" if wish.share == 1.0 else f"{100 * wish.share:g} % of the jobs"
    bound = f"{wish.slo:g} times its time alone" if wish.slo else "its slo, in times of its time alone"
    note = " (quick: a tenth of the steps, or of hundreds of jobs)" if is_quick else ""
    print(f"The fewest {scenario.cluster.accelerator} on which {who} ends within {bound}, waiting included{note}:\n")
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
    print("\nSlowdowns on the sizes that were looked at:")
    for found in plans:
        sizes = (f"{devices:,}: {'-' if slowdown is None else f'{slowdown:.2f}'}" for devices, slowdown in found.tried.items())
        print(f"{found.system}  {', '.join(sizes)}")
    for found in plans:
        if found.num_devices is None:
            print(f"\n{_why_none(found)}")


def _why_none(found: "Plan") -> str:
    most = max(found.tried)
    text = f"{found.system}: not even {most:,} devices are enough, on which all jobs run at once"
    reached = found.tried[most]
    if reached is None:
        return f"{text}: too few of them end there."
    return f"{text}: there it takes {reached:.4g} times its time alone. Give a larger --slo, or a smaller --share."
