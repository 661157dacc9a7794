"""The reward claim, exactly: a task's adapter is the same bits at every step, whoever else was trained with it. Pure."""

from collections.abc import Mapping, Sequence

from benchmarks.marlaas_measures import Digests


def compare(alone: Digests, together: Mapping[str, Digests]) -> tuple[int, list[str]]:
    """How many adapters of the runs `together` were compared, and a line for each that differs or is not known alone."""
    num_compared, faults = 0, []
    for name, digests in together.items():
        for (task, step), digest in sorted(digests.items()):
            num_compared += 1
            if alone.get((task, step)) != digest:
                known = "differs from" if (task, step) in alone else "has no counterpart in"
                faults.append(f"{name}: the adapter of {task} after step {step} {known} the task trained alone")
    return num_compared, faults


def merge(runs: Sequence[Digests]) -> tuple[Digests, list[str]]:
    """Adapters of tasks trained alone, from several runs, and a line for each on which these do not agree."""
    merged: Digests = {}
    faults = []
    for digests in runs:
        for key, digest in digests.items():
            if merged.setdefault(key, digest) != digest:
                faults.append(f"alone: two runs of {key[0]} alone differ after step {key[1]}")
    return merged, faults
