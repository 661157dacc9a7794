"""What a scenario file may say: the settings that both kinds share, and those of kind "tasks".

A scenario of kind "tasks" has training tasks that share rollout engines and a trainer (MARLaaS, Seer); one of kind "jobs" has jobs
on a cluster (PlexRL; `job_scenario`). Both are simulated once for each of their `systems`, with the same workload.
"""

import difflib
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from plait.config.base import Settings
from plait.simulation.catalogue import read_table
from plait.simulation.paper_figures import PaperFigure

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Sigma = Annotated[float, Field(ge=0, le=5)]
Count = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(gt=0, le=1)]


def _known(table: str) -> Callable[[str], str]:
    def check(name: str) -> str:
        names = sorted(read_table(table))
        if name in names:
            return name
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.3)
        hint = f'; did you mean "{near[0]}"?' if near else ";"
        raise ValueError(f'"{name}" is not known{hint} Known are {", ".join(names)}')

    return check


AcceleratorName = Annotated[str, AfterValidator(_known("accelerators"))]
ModelName = Annotated[str, AfterValidator(_known("models"))]


class ClusterSettings(Settings):
    accelerator: AcceleratorName
    """A name in the table of accelerators: "H100", "H800", "H200", "H20", "A100", "Ascend-910B", "Ascend-910C", "CPU"."""
    devices: Annotated[int, Field(ge=1, le=1_000_000)]
    """Of the whole cluster."""
    devices_per_node: Annotated[int, Field(ge=0)] = 0
    """0: as the accelerator's usual server."""
    price_per_device_hour: NotNegative = 0.0
    """In any currency; 0: cost is given in device-hours alone."""


class EfficiencySettings(Settings):
    """Shares of the specification that software reaches; a measured profile of your own machine is better."""

    memory: Share = 0.8
    """Of the memory's rate, while decoding."""
    arithmetic: Share = 0.6
    """Of the arithmetic, in long prompts."""
    training: Share = 0.4
    """Of the arithmetic, in training."""
    transfer: Share = 0.8
    """Of links between devices, nodes and tiers."""
    layer_s: NotNegative = 8e-6
    """Of each layer of each step: launches and what is not a product."""
    step_s: NotNegative = 3e-3
    """Of each step: scheduling, sampling, messages."""
    link_latency_s: NotNegative = 8e-6
    """Of an all-reduce."""


class BaseSettings(Settings):
    name: ModelName
    """A name in the table of models, as "Qwen3-8B"."""
    trained_share: Share = 0.01
    """Of the parameters that a task trains: an adapter's share, or 1 in full."""
    profile: str = ""
    """A file of `plait profile`, seen from the scenario's folder: what calls took there stands instead of rooflines. A device is
    then the whole of what was measured, so an engine and the trainer have one each."""


class RolloutSettings(Settings):
    devices_per_engine: Count = 1
    """An engine's model lies over so many devices."""
    max_rows: Count = 256
    """Generations that an engine decodes together."""
    chunk_tokens: Count = 512
    """Most new tokens of a generation before it may go on at another engine."""
    memory_share: Share = 0.85
    """Of the devices' memory for weights and caches; caches get what weights leave."""
    cache_tokens: Annotated[int, Field(ge=0)] = 0
    """Of each engine's cache; 0: what `memory_share` leaves."""
    pool_tokens: Count | None = None
    """Of the tiers below the caches, all engines together, for generations between two chunks; left out: ample."""
    adapts_rows: bool = False
    """Each engine's rows are found by its own throughput, up to `max_rows`."""


class TrainingSettings(Settings):
    devices: Count
    """Of the trainer. All others roll out."""
    micro_batch_tokens: Count = 16_384
    """The trainer turns from one task to another between micro-batches."""


class LengthSettings(Settings):
    """Lognormal lengths of answers, alike within a group, cut at the most."""

    median_tokens: Positive
    """Half of the answers are shorter."""
    sigma: Sigma = 0.7
    """Standard deviation of the natural logarithm."""
    correlation: Annotated[float, Field(ge=0, le=1)] = 0.7
    """Share of the logarithms' variance that lies between groups; 1: siblings are equally long."""
    max_tokens: Count
    """Longer answers are cut here."""
    min_tokens: Count = 1
    """Of the shortest answer."""


class TaskSettings(Settings):
    """One kind of task, `count` times."""

    name: Name
    """Of the task; with a number behind it if there are several."""
    count: Count = 1
    """So many tasks of this kind."""
    tenant: str = "tenant"
    """Tenants share the engines and the trainer fairly."""
    steps: Count
    """Optimizer steps of each task."""
    groups_per_step: Count
    """Prompts of a step."""
    group_size: Count
    """Answers to each prompt."""
    prompt_tokens: Count = 256
    """Of each prompt."""
    lengths: LengthSettings
    """How long answers are."""
    turns: Count = 1
    """Answers of an episode, with the environment between them."""
    observation_tokens: Annotated[int, Field(ge=0)] = 0
    """What the environment answers between two turns."""
    delay_s: NotNegative = 0.0
    """Median time of the environment after each answer: tools, verifiers."""
    delay_sigma: Sigma = 0.0
    """Of the natural logarithm of the delay; 0: it is always the same."""
    max_staleness: Annotated[int, Field(ge=0)] = 0
    """Steps that a policy which rolls out may lag behind; 0: strictly on-policy."""
    arrival_s: NotNegative = 0.0
    """When the first one of this kind comes."""
    arrival_every_s: NotNegative = 0.0
    """Between one of this kind and the next; 0: all come at once."""


class TaskSystem(Settings):
    """How one of the compared systems does it. All have the same devices and workload."""

    name: Name
    """What the tables call it."""
    sharing: Literal["together", "rounds", "one_at_a_time"] = "together"
    """"together": as Plait; "rounds": all roll out, then all train; "one_at_a_time": the next begins when one has ended."""
    scheduler: Literal["context", "divided", "first_come", "exclusive", "pinned"] = "context"
    """"context": Seer's; "divided": the same without expected lengths; "first_come": in order of arrival; "exclusive": the engines
    decode one task's generations at a time; "pinned": whole groups, each at the engine that it was given in turn."""
    engine: Literal["own", "drafting", "preempting"] = "own"
    """"drafting": with drafts from siblings, where they pay; "preempting": it reserves no memory, and gives up its newest
    generation where its cache overflows."""
    staged: bool = False
    """No environment answers before all generations under way have ended."""
    knows_lengths: bool = False
    """Generations say beforehand how long they become: an oracle."""
    over_issue: Count = 1
    """So many times the groups are issued; what ends first is kept."""
    layout: Literal["split", "shared"] = "split"
    """"shared": all devices roll out, then all train. Not with "together", where both happen at once."""
    whole_answers: bool = False
    """Generations are not divided into chunks: each stays where it began, with memory for its longest answer."""
    chunk_tokens: Count | None = None
    """Instead of the scenario's."""
    turn_chunks: Count | None = None
    """Chunks that a task has in a row before another's turn."""
    max_rows: Count | None = None
    """Instead of the scenario's."""
    max_staleness: Annotated[int, Field(ge=0)] | None = None
    """Instead of each task's."""

    @model_validator(mode="after")
    def _fits(self) -> "TaskSystem":
        if self.layout == "shared" and self.sharing == "together":
            raise ValueError(
                'layout = "shared" needs sharing = "rounds" or "one_at_a_time": tasks together roll out and train at once'
            )
        if (self.engine == "preempting") != (self.scheduler == "pinned"):
            raise ValueError('scheduler = "pinned" and engine = "preempting" belong together: all others reserve memory')
        if self.layout == "shared" and self.max_staleness:
            raise ValueError('layout = "shared" with a max_staleness above 0 would roll out and train at once')
        return self


class ScenarioSettings(Settings):
    """What both kinds of scenario have."""

    title: str = ""
    """One line: what is simulated."""
    description: str = ""
    """What is compared, and what was assumed."""
    assumptions: tuple[str, ...] = ()
    """What a paper leaves open, and what was chosen; printed with the results."""
    paper: tuple[PaperFigure, ...] = ()
    """A paper's figures, to be printed beside the simulation's."""
    seed: Annotated[int, Field(ge=0)] = 0
    """All that is drawn is a function of it."""
    cluster: ClusterSettings
    """The devices."""
    efficiency: EfficiencySettings = EfficiencySettings()
    """Of the software on them."""


class TaskScenario(ScenarioSettings):
    kind: Literal["tasks"] = "tasks"
    """"tasks": training tasks that share engines and a trainer; "jobs": jobs on a cluster."""
    model: BaseSettings
    """The base that all tasks share."""
    rollout: RolloutSettings = RolloutSettings()
    """The engines."""
    training: TrainingSettings
    """The trainer."""
    tasks: Annotated[tuple[TaskSettings, ...], Field(min_length=1)]
    """The workload."""
    systems: Annotated[tuple[TaskSystem, ...], Field(min_length=1)] = (TaskSystem(name="plait"),)
    """What is compared; the first one is what others are measured against."""
    measure_slowdowns: bool = True
    """Simulate each kind of task alone on the cluster too, to say how much slower it is among others."""
