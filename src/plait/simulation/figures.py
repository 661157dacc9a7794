"""The figures that systems are compared by: what each is called, its unit, what it means."""

import msgspec

from plait.observe.text import duration

SMALL_SHARE = 1e-3


class Figure(msgspec.Struct, frozen=True):
    key: str
    label: str
    unit: str
    """"s", "share", "" for a number, or what stands behind the number."""
    better: str
    """"higher", "lower", or "" where neither is better."""
    meaning: str

    def text(self, value: float | None) -> str:
        if value is None:
            return "-"
        if self.unit == "s":
            return duration(value) if value == 0 or value >= 1 else f"{1000 * value:.3g} ms"
        if self.unit == "share":
            return f"{100 * value:.1f} %"
        number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 1 else f"{value:.3g}"
        return f"{number} {self.unit}".rstrip()

    def ratio(self, value: float | None, first: float | None) -> str:
        """`value` over that of the first system, as "1.52x"; nothing where that one is next to nothing."""
        if first is not None and self.unit == "share" and abs(first) < SMALL_SHARE:
            return ""
        return f"{value / first:.2f}x" if value is not None and first else ""


TASK_FIGURES = (
    Figure("makespan_s", "all tasks done after", "s", "lower", "from the first arrival to the end of the last task"),
    Figure("steps_per_hour", "steps per hour", "", "higher", "optimizer steps of all tasks"),
    Figure("tokens_per_s", "sampled tokens per second", "", "higher", "of all engines, over the whole time"),
    Figure("first_step_s", "time to first step", "s", "lower", "mean over tasks, from arrival to the first committed step"),
    Figure("step_s", "time of a step", "s", "lower", "mean over steps, from the start of the rollout to the commit"),
    Figure("rollout_s", "time of a rollout", "s", "lower", "mean over steps, from its start to the last score"),
    Figure(
        "rollout_tokens_per_s",
        "tokens per second of a rollout",
        "",
        "higher",
        "sampled tokens of a step over the time of its rollout",
    ),
    Figure("utilisation", "devices busy", "share", "higher", "share of all devices' time in which they worked"),
    Figure("rollout_utilisation", "rollout devices busy", "share", "higher", "engines with at least one row"),
    Figure("training_utilisation", "training devices busy", "share", "higher", "forward, backward, optimizer and publishing"),
    Figure("rows_mean", "rows per engine", "", "higher", "generations that an engine decodes together, over the whole time"),
    Figure("tail_s", "tail of a step", "s", "lower", "mean time in which the last tenth of a step's episodes ends"),
    Figure("tail_share", "tail's share of rollout", "share", "lower", "time of tails over time of rollouts"),
    Figure("training_wait_s", "ready batch to commit", "s", "lower", "mean: waiting for the trainer, training and publishing"),
    Figure("kv_mean", "caches reserved", "share", "", "mean share of the engines' caches that is reserved"),
    Figure("kv_peak", "caches reserved at most", "share", "", "largest mean of a bin of the timeline"),
    Figure("waiting_mean", "generations waiting", "", "lower", "mean number that wait for room at an engine"),
    Figure("slowdown_mean", "slowdown", "", "lower", "mean over tasks: time among the others over time alone on the cluster"),
    Figure("slowdown_max", "largest slowdown", "", "lower", "of any task"),
    Figure("device_hours", "device-hours", "", "lower", "all devices, from the first arrival to the end"),
    Figure("device_hours_per_step", "device-hours per step", "", "lower", "device-hours over committed steps"),
    Figure("cost", "cost", "", "lower", "device-hours times the price of one"),
)
JOB_FIGURES = (
    Figure("makespan_s", "all jobs done after", "s", "lower", "end of the last job that ended"),
    Figure("ended", "jobs that ended", "", "higher", "the others were rejected, or were not done when the simulation ended"),
    Figure("steps", "steps", "", "higher", "committed, of all jobs"),
    Figure("held_device_hours", "device-hours held", "", "lower", "by worker groups, in use or not"),
    Figure("device_hours_per_step", "device-hours per step", "", "lower", "held device-hours over committed steps"),
    Figure("busy_share", "held devices busy", "share", "higher", "share of held time in which calls ran"),
    Figure("cluster_utilisation", "cluster busy", "share", "higher", "busy time over that of all devices until the last job's end"),
    Figure("setup_share", "moving state", "share", "lower", "share of held time: loading and offloading jobs"),
    Figure("lost_share", "lost", "share", "lower", "share of held time: calls that were withdrawn"),
    Figure("decode_realised_to_peak", "realised / peak decoding", "share", "higher", "tokens drawn over those of full batches"),
    Figure("slowdown_mean", "slowdown", "", "lower", "mean over ended jobs: time since the start over time alone"),
    Figure("slowdown_p95", "slowdown, 95 %", "", "lower", "95 of 100 jobs were slowed down less"),
    Figure("slowdown_max", "largest slowdown", "", "lower", "of any job"),
    Figure("late", "jobs beyond their SLO", "", "lower", "ended jobs whose slowdown exceeds it"),
    Figure("queue_mean_s", "wait for devices", "s", "lower", "mean time from arrival to start"),
    Figure("queue_p95_s", "wait for devices, 95 %", "s", "lower", "95 of 100 jobs waited less"),
    Figure("call_wait_s", "wait of a call", "s", "lower", "mean time in a group's queue"),
    Figure("switches", "switches", "", "", "changes of the job whose call runs, over all groups"),
    Figure("device_hours", "device-hours of the cluster", "", "lower", "all devices until the last job's end"),
    Figure("cost", "cost", "", "lower", "device-hours of the cluster times the price of one"),
)


def figures_of(kind: str) -> tuple[Figure, ...]:
    return TASK_FIGURES if kind == "tasks" else JOB_FIGURES
