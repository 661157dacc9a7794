"""What of a scenario does not fit together, each with the location of the key that is to be changed."""

from collections import Counter
from collections.abc import Iterator, Sequence

from plait.simulation.figures import figures_of
from plait.simulation.hardware import accelerator
from plait.simulation.job_room import devices_per_node, room_problems
from plait.simulation.job_scenario import JobScenario, JobSettings
from plait.simulation.measured_costs import profile_costs
from plait.simulation.measured_model import measured_model
from plait.simulation.model_shapes import model_shape
from plait.simulation.philly_jobs import trace_problems
from plait.simulation.scenario import ScenarioSettings, TaskScenario, TaskSettings
from plait.types.errors import ConfigError

Location = tuple[str | int, ...]
Problem = tuple[Location, str]


def check_scenario(scenario: ScenarioSettings) -> list[Problem]:
    return [*_kind(scenario), *_paper(scenario)]


MOST_JOBS = 1_000_000
"""In a scenario; each is 6 KB."""
MOST_TASKS = 10_000
MOST_SAMPLES = 1_000_000
"""In a step."""


def _kind(scenario: ScenarioSettings) -> list[Problem]:
    if isinstance(scenario, TaskScenario):
        return [
            *_names("tasks", scenario.tasks),
            *_numbered("tasks", scenario.tasks, "{}"),
            *_counts("tasks", scenario.tasks, MOST_TASKS),
            *_names("systems", scenario.systems),
            *_engines(scenario),
            *_profile(scenario),
            *_tasks(scenario),
            *_systems(scenario),
        ]
    assert isinstance(scenario, JobScenario)
    names = [*_names("jobs", scenario.jobs), *_numbered("jobs", scenario.jobs, "{:04}"), *_names("systems", scenario.systems)]
    problems = [*names, *_counts("jobs", scenario.jobs, MOST_JOBS), *_nodes(scenario), *_jobs(scenario), *trace_problems(scenario)]
    return problems or list(room_problems(scenario))


def _names(key: str, entries: Sequence[object]) -> Iterator[Problem]:
    counts = Counter(str(getattr(entry, "name", "")) for entry in entries)
    for number, entry in enumerate(entries):
        name = str(getattr(entry, "name", ""))
        if counts[name] > 1:
            yield (key, number, "name"), f'{key}[{number}].name = "{name}": another one has that name'


def _numbered(key: str, entries: Sequence[TaskSettings | JobSettings], text: str) -> Iterator[Problem]:
    """Tasks or jobs of one kind are called like it, with a number behind it as in `text`: nobody else may be."""
    for number, entry in enumerate(entries):
        for other in entries:
            last = entry.name.removeprefix(f"{other.name}-")
            is_number = last.isdecimal() and 0 < int(last) <= other.count and last == text.format(int(last))
            if entry is not other and other.count > 1 and entry.count == 1 and is_number and last != entry.name:
                where = f'{key}[{number}].name = "{entry.name}"'
                yield (key, number, "name"), f'{where}: one of the {other.count} of {key} "{other.name}" is called so'


def _counts(key: str, entries: Sequence[TaskSettings | JobSettings], most: int) -> Iterator[Problem]:
    total, largest = sum(entry.count for entry in entries), max(entries, key=lambda entry: entry.count)
    if total > most:
        number = entries.index(largest)
        yield (key, number, "count"), f"{_name(number, largest)}.count = {largest.count}: {total:,} {key}, of {most:,} at most"


def _paper(scenario: ScenarioSettings) -> Iterator[Problem]:
    known = {system.name for system in getattr(scenario, "systems", ())}
    for number, figure in enumerate(scenario.paper):
        for key, name in (("system", figure.system), ("over", figure.over)):
            if name and name not in known:
                yield ("paper", number, key), f'paper[{number}].{key} = "{name}": systems are {", ".join(sorted(known))}'
        if figure.figure not in _figures(scenario):
            text = f'paper[{number}].figure = "{figure.figure}": figures are {", ".join(_figures(scenario))}'
            yield ("paper", number, "figure"), text


def _figures(scenario: ScenarioSettings) -> list[str]:
    models = sorted({job.model for job in scenario.jobs}) if isinstance(scenario, JobScenario) else []
    known = [figure.key for figure in figures_of("jobs" if isinstance(scenario, JobScenario) else "tasks")]
    return [*known, *(f"device_hours_per_step/{model}" for model in models)]


# ---- tasks


def rollout_devices(scenario: TaskScenario) -> int:
    return scenario.cluster.devices - scenario.training.devices


def cache_tokens(scenario: TaskScenario) -> int:
    """Of an engine: as set, or what `memory_share` leaves after the weights."""
    rollout = scenario.rollout
    if rollout.cache_tokens:
        return rollout.cache_tokens
    shape, device = model_shape(scenario.model.name), accelerator(scenario.cluster.accelerator)
    left = device.memory_bytes * rollout.memory_share * rollout.devices_per_engine - shape.weight_bytes
    return int(left / shape.kv_bytes_per_token)


def _engines(scenario: TaskScenario) -> Iterator[Problem]:
    devices, per_engine = rollout_devices(scenario), scenario.rollout.devices_per_engine
    if devices < per_engine:
        yield (
            ("training", "devices"),
            f"training.devices = {scenario.training.devices}: of cluster.devices = {scenario.cluster.devices} that leaves "
            f"{devices} to roll out, and an engine has {per_engine}",
        )
    elif devices % per_engine:
        where: Location = ("rollout", "devices_per_engine")
        yield where, f"rollout.devices_per_engine = {per_engine}: {devices} devices roll out, which is no multiple of it"
    if cache_tokens(scenario) <= 0:
        where = ("rollout", "devices_per_engine")
        yield (
            where,
            f"rollout.devices_per_engine = {per_engine}: {scenario.model.name} leaves no memory for caches on {per_engine} "
            f"{scenario.cluster.accelerator}; give an engine more devices",
        )


def _profile(scenario: TaskScenario) -> Iterator[Problem]:
    path = scenario.model.profile
    if not path:
        return
    try:
        yield from _measured(scenario.model.name, path, profile_costs(path).profile.model)
    except ConfigError as error:
        yield ("model", "profile"), f'model.profile = "{path}": {error}'
    for table, key, number in (
        ("rollout", "devices_per_engine", scenario.rollout.devices_per_engine),
        ("training", "devices", scenario.training.devices),
    ):
        if number != 1:
            yield (table, key), f"{table}.{key} = {number}: with model.profile a device is the whole of what was measured; give 1"
    for index, system in enumerate(scenario.systems):
        if system.layout == "shared":
            text = f'systems[{index}] (name "{system.name}").layout = "shared": with model.profile give "split", '
            yield ("systems", index, "layout"), text + "since nobody measured two devices that do one thing together"


def _measured(name: str, path: str, measured: str) -> Iterator[Problem]:
    found = measured_model(measured)
    if found not in (None, name):
        text = f'model.name = "{name}": model.profile = "{path}" was measured on "{measured}"; give "{found}"'
        yield ("model", "name"), f"{text}, or a profile of {name}"


def _tasks(scenario: TaskScenario) -> Iterator[Problem]:
    room = cache_tokens(scenario)
    over_issue = max(system.over_issue for system in scenario.systems)
    for number, task in enumerate(scenario.tasks):
        samples = task.groups_per_step * task.group_size * over_issue
        if samples > MOST_SAMPLES:
            text = f"{_name(number, task)}.groups_per_step = {task.groups_per_step}: with group_size and over_issue a step has"
            yield ("tasks", number, "groups_per_step"), f"{text} {samples:,} answers, of {MOST_SAMPLES:,} at most"
        lengths = task.lengths
        if lengths.min_tokens > lengths.max_tokens:
            where: Location = ("tasks", number, "lengths", "min_tokens")
            yield where, f"{_name(number, task)}.lengths.min_tokens = {lengths.min_tokens}: max_tokens is {lengths.max_tokens}"
        longest = task.prompt_tokens + task.turns * lengths.max_tokens + (task.turns - 1) * task.observation_tokens
        if 0 < room < longest:
            where = ("tasks", number, "lengths", "max_tokens")
            text = f"{_name(number, task)}.lengths.max_tokens = {lengths.max_tokens}: with prompt and turns an episode may have"
            yield where, f"{text} {longest} tokens, and an engine's cache holds {room}"


def _systems(scenario: TaskScenario) -> Iterator[Problem]:
    is_stale = any(task.max_staleness for task in scenario.tasks)
    for number, system in enumerate(scenario.systems):
        if system.layout == "shared" and is_stale and system.max_staleness is None:
            text = f'systems[{number}] (name "{system.name}").layout = "shared": tasks with a max_staleness above 0 would '
            yield ("systems", number, "layout"), text + "roll out and train at once; give the system max_staleness = 0"


def _name(number: int, entry: TaskSettings | JobSettings) -> str:
    return f'{"tasks" if isinstance(entry, TaskSettings) else "jobs"}[{number}] (name "{entry.name}")'


# ---- jobs


def _nodes(scenario: JobScenario) -> Iterator[Problem]:
    devices, per_node = scenario.cluster.devices, devices_per_node(scenario)
    if devices % per_node:
        yield (
            ("cluster", "devices"),
            f"cluster.devices = {devices}: give a multiple of the {per_node} devices of a node, or cluster.devices_per_node",
        )
    num_nodes = devices // per_node
    names = {f"node-{number:04}" for number in range(num_nodes)}
    for number, failure in enumerate(scenario.failures):
        if failure.node not in names:
            text = f'failures[{number}].node = "{failure.node}": nodes are "node-0000" to "node-{num_nodes - 1:04}"'
            yield ("failures", number, "node"), text


def _jobs(scenario: JobScenario) -> Iterator[Problem]:
    for number, job in enumerate(scenario.jobs):
        wanted = max(job.rollout.devices, job.train.devices) if job.colocated else job.rollout.devices + job.train.devices
        if wanted > scenario.cluster.devices:
            text = f"{_name(number, job)} wants {wanted} devices, and cluster.devices = {scenario.cluster.devices}"
            yield ("jobs", number), text
        if job.colocated and job.staleness:
            text = f"{_name(number, job)}.staleness = {job.staleness}: the parts of a colocated job take turns, so give 0"
            yield ("jobs", number, "staleness"), text
        if job.colocated and job.rollout.devices != job.train.devices:
            text = f"{_name(number, job)}.train.devices = {job.train.devices}: a colocated job has as many as in rollout"
            yield ("jobs", number, "train", "devices"), f"{text}, {job.rollout.devices}"
