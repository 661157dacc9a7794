"""Settings of scenarios of kind "jobs": reinforcement-learning jobs that come to a cluster (PlexRL)."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from plait.config.base import Settings
from plait.placement.job import DEFAULT_SLO
from plait.simulation.scenario import Count, ModelName, Name, NotNegative, Positive, ScenarioSettings, Share, Sigma

PolicyName = Literal["isolated", "pack", "spread", "spread+backfill"]
OrderName = Literal["hrrs", "fifo", "round-robin", "least-recently-served", "shortest-first"]


class PartSettings(Settings):
    """Rollout or training of a job's step."""

    devices: Count
    """That this part asks for."""
    seconds: Positive
    """All calls of a step together, alone on these devices, without delays."""
    calls: Count = 1
    """Function calls of a step; others may run between them."""
    delay_s: NotNegative = 0.0
    """Between one call and the next: tools, environments."""
    after_s: NotNegative = 0.0
    """From the end of the last call until the other part may begin: answers are scored, a step is recorded. Needs no device."""
    jitter: Sigma = 0.0
    """Standard deviation of the natural logarithm of a step's seconds, from step to step."""
    after_jitter: Sigma = 0.0
    """Of `after_s`, in the same way."""
    drift: Annotated[float, Field(gt=-1)] = 0.0
    """The last step takes so much longer than the first, as a share: answers grow while a policy learns."""
    state_bytes_per_device: NotNegative | None = None
    """Of weights, moments and caches; without it the model's weights, and in training gradients and moments as well."""


class JobSettings(Settings):
    """One kind of job, `count` times."""

    name: Name
    """Of the kind: jobs of one kind are known to have alike demand."""
    count: Count = 1
    """So many jobs of this kind."""
    model: ModelName
    """A name in the table of models, as "Qwen3-30B-A3B"."""
    steps: Count
    """Of each job; the median where they spread."""
    steps_sigma: Sigma = 0.0
    """Of the natural logarithm of the jobs' steps; 0: all have the same."""
    seconds_sigma: Sigma = 0.0
    """Of the natural logarithm of a factor on a job's seconds: jobs of a kind are not all equally large."""
    rollout: PartSettings
    """The first part of a step."""
    train: PartSettings
    """The second part of a step."""
    staleness: Annotated[int, Field(ge=0)] = 0
    """A rollout may begin before the step so many before it is trained; 0: the parts take turns."""
    colocated: bool = False
    """Both parts on the same devices, in turns."""
    slo: Annotated[float, Field(ge=1)] = DEFAULT_SLO
    """The job may take at most so many times as long as alone."""
    fill: Share = 0.8
    """Mean tokens per second of a rollout, over those of a full batch: its tail has few rows."""
    arrival_s: NotNegative = 0.0
    """When the first job of this kind comes."""
    arrival_every_s: NotNegative = 0.0
    """Between one job of this kind and the next, on average; 0: all come at once."""
    arrivals: Literal["regular", "poisson"] = "regular"
    """"poisson": times between arrivals are exponential."""


class JobSystem(Settings):
    """How one of the compared clusters does it. All have the same devices and jobs."""

    name: Name
    """What the tables call it."""
    policy: PolicyName = "spread+backfill"
    """Who shares devices with whom. "isolated": nobody."""
    order: OrderName = "hrrs"
    """Whose call runs next where jobs share devices."""
    colocated: bool | None = None
    """Instead of each job's; where the two parts' devices differ, both get the larger number and seconds as before."""
    staleness: Annotated[int, Field(ge=0)] | None = None
    """Instead of each job's."""

    @model_validator(mode="after")
    def _fits(self) -> "JobSystem":
        if self.colocated and self.staleness:
            raise ValueError("colocated with a staleness above 0: parts on the same devices take turns")
        return self


class FailureSettings(Settings):
    """A node is lost, with all that ran there."""

    node: str
    """The first is "node-0000"."""
    at_s: NotNegative
    """When."""
    down_s: Positive | None = None
    """It comes back after so long; without it, never."""


class TraceSettings(Settings):
    """Jobs come, and last, as in a trace of a real cluster; each is of the kind of [[jobs]] that is nearest in devices. Their own
    `count`, `steps` and arrivals then say nothing."""

    file: Name
    """`cluster_job_log` of the Philly traces (github.com/msr-fiddle/philly-traces), or a file of its form. Seen from the
    scenario's folder."""
    device_scale: Positive = 1.0
    """A job of the trace counts as one of so many times its devices: clusters have grown."""
    min_s: NotNegative = 1800.0
    """Jobs that ran shorter are left out: what failed at once, debugging."""
    from_day: NotNegative = 0.0
    """Of the trace; earlier jobs are left out."""
    days: Positive | None = None
    """So many from there on; without it, all."""


class JobScenario(ScenarioSettings):
    kind: Literal["jobs"]
    """"tasks": training tasks that share engines and a trainer; "jobs": jobs on a cluster."""
    jobs: Annotated[tuple[JobSettings, ...], Field(min_length=1)]
    """The workload."""
    systems: Annotated[tuple[JobSystem, ...], Field(min_length=1)] = (JobSystem(name="plait"),)
    """What is compared; the first one is what others are measured against."""
    days: Positive | None = None
    """As many jobs come, in the proportions of `count`, as fill all devices for so many days if each has devices of its own; they
    come evenly over these days. Without it, `count` of each."""
    trace: TraceSettings | None = None
    """Where jobs come from, instead of `count` of each; `days` then says how much of it."""
    failures: tuple[FailureSettings, ...] = ()
    """Of nodes."""
    until_s: Positive | None = None
    """End the simulation then; without it, when the last job has ended."""
    nodes_per_group: Count = 32
    """Nodes that are near each other: jobs are kept within such a group where they fit. More than 16 nodes share a line of the
    timeline with their group."""
    state_share: Share = 0.6
    """Of a device's memory, for what stays resident between calls."""
    switch_s: NotNegative = 2.0
    """Of each load of a job's state besides its bytes (Weave, OSDI'26: about 2 s warm)."""
