"""The measures of one server. Each gives rows: measure, setting and figures, of which `service_headlines` draws the headlines."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.service_client import ClientProcess, Result
from benchmarks.service_server import PlaitServer, peak_of

Row = dict[str, Any]
SHORT_TOKENS, SAMPLE_TOKENS = 1, 16
NUM_MODELS = 4
LONG_TOKENS = 512
MICRO_BATCH_TOKENS = 2048
"""The server's default: tokens of a slice."""
NUM_RESULT_ROUNDS = 2
"""Of all results, whose fastest round counts."""


@dataclass(frozen=True, slots=True)
class Sizes:
    num_latencies: int = 200
    num_requests: int = 1000
    lanes: int = 32
    num_results: int = 2000
    num_rounds: int = 5
    num_samples_a_round: int = 20
    num_long_datums: int = 32
    num_short_calls: int = 10
    publishes_a_round: int = 10
    publish_every_s: float = 1.0
    num_at_once: int = 2000


QUICK = Sizes(
    num_latencies=30, num_requests=150, num_results=500, num_rounds=2, num_samples_a_round=8, num_long_datums=16, num_short_calls=4,
    publishes_a_round=3, num_at_once=300,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Clients:
    """Of a tenant each. `other` is the one who must not suffer from what `busy` does."""

    busy: ClientProcess
    other: ClientProcess

    def warm_up(self) -> None:
        for client in (self.busy, self.other):
            client.run("samples", max_tokens=SAMPLE_TOKENS, count=4, lanes=4)
            client.run("forward_backwards", num_datums=1, num_tokens=16, count=1)
            client.run("optimizer_steps", count=NUM_MODELS, lanes=NUM_MODELS)
        self.busy.run("forward_backwards", num_datums=4, num_tokens=LONG_TOKENS, count=1)
        self.busy.run("publishes", count=1, every_s=0)


def latencies_of(name: str, setting: str, result: Result) -> Row:
    return {
        "measure": name, "setting": setting, "count": result["count"], "per_s": result["count"] / result["wall_s"],
        "median_s": median(result["latencies_s"]), "p95_s": percentile(result["latencies_s"], 0.95),
        "max_s": max(result["latencies_s"]),
    }  # fmt: skip


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not below `share` of them."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def measure_requests(clients: Clients, sizes: Sizes) -> list[Row]:
    """Latency of one client that waits for each answer, and requests a second of many at once."""

    def row(name: str, load: str, count: int, lanes: int, **options: Any) -> Row:
        setting = f"{lanes} at a time" if lanes > 1 else "one at a time"
        return latencies_of(name, setting, clients.other.run(load, count=count, lanes=lanes, **options))

    return [
        row("empty sample", "samples", sizes.num_latencies, 1, max_tokens=SHORT_TOKENS),
        row("empty sample", "samples", sizes.num_requests, sizes.lanes, max_tokens=SHORT_TOKENS),
        row("optimizer step", "optimizer_steps", sizes.num_latencies // 2, 1),
        row("optimizer step", "optimizer_steps", sizes.num_latencies, NUM_MODELS),
    ]


def measure_results(clients: Clients, sizes: Sizes) -> list[Row]:
    """Finished samples, each fetched once."""
    return [
        latencies_of(
            "protobuf result", f"round {number}",
            clients.other.run("results", count=sizes.num_results, lanes=sizes.lanes, max_tokens=SAMPLE_TOKENS),
        )
        for number in range(NUM_RESULT_ROUNDS)
    ]  # fmt: skip


def measure_sample_beside_training(clients: Clients, sizes: Sizes) -> list[Row]:
    """The other tenant's samples, idle and busy blocks in turn."""
    blocks: dict[str, list[Result]] = {"idle": [], "while another trains": []}
    for _ in range(sizes.num_rounds):
        blocks["idle"].append(_samples(clients, sizes))
        clients.busy.start("forward_backwards", num_datums=sizes.num_long_datums, num_tokens=LONG_TOKENS)
        blocks["while another trains"].append(_samples(clients, sizes))
        clients.busy.stop()
    return [latencies_of("16-token sample", setting, merged(results)) for setting, results in blocks.items()]


def _samples(clients: Clients, sizes: Sizes) -> Result:
    return clients.other.run("samples", max_tokens=SAMPLE_TOKENS, count=sizes.num_samples_a_round)


def merged(results: Sequence[Result]) -> Result:
    return {
        "count": sum(result["count"] for result in results),
        "wall_s": sum(result["wall_s"] for result in results),
        "latencies_s": [latency_s for result in results for latency_s in result["latencies_s"]],
    }


def measure_quantum(clients: Clients, sizes: Sizes) -> list[Row]:
    """A short training call behind a long one waits for slices of it: for the one that runs, and at most for one more."""
    num_slices = sizes.num_long_datums * LONG_TOKENS // MICRO_BATCH_TOKENS
    long = clients.busy.run("forward_backwards", num_datums=sizes.num_long_datums, num_tokens=LONG_TOKENS, count=1)
    slice_s = long["wall_s"] / num_slices
    alone = _short_calls(clients, sizes)
    clients.busy.start("forward_backwards", num_datums=sizes.num_long_datums, num_tokens=LONG_TOKENS)
    behind = _short_calls(clients, sizes)
    clients.busy.stop()
    wait_s = max(behind["latencies_s"]) - median(alone["latencies_s"])
    figures = {"slice_s": slice_s, "longest_wait_s": wait_s, "longest_wait_slices": wait_s / slice_s}
    return [
        latencies_of("short training call", "alone", alone),
        latencies_of("short training call", "behind a long one", behind) | figures,
    ]


def measure_turns(server: PlaitServer, clients: Clients, sizes: Sizes) -> list[Row]:
    """Calls of the same length of two tenants: how many slices of the other one waited for, as the trainer counts them."""
    load = {"num_datums": sizes.num_long_datums, "num_tokens": LONG_TOKENS}
    clients.busy.start("forward_backwards", **load)
    beside = clients.other.run("forward_backwards", count=sizes.num_rounds, **load)
    clients.busy.stop()
    row = latencies_of("long training call", "beside another tenant's", beside)
    return [row | {"most_slices_waited": server.most_slices_waited()}]


def _short_calls(clients: Clients, sizes: Sizes) -> Result:
    return clients.other.run("forward_backwards", num_datums=1, num_tokens=16, count=sizes.num_short_calls, pause_s=0.05)


def measure_publishing(clients: Clients, sizes: Sizes, every_s: float) -> list[Row]:
    """The other tenant's tokens a second, alone and beside publish steps in turn, for as long as the steps take."""
    beside, alone, steps = [], [], []
    load = {"max_tokens": SAMPLE_TOKENS, "lanes": sizes.lanes}
    for _ in range(sizes.num_rounds):
        clients.other.start("samples", **load)
        steps.append(clients.busy.run("publishes", count=sizes.publishes_a_round, every_s=every_s))
        beside.append(_tokens_per_s(clients.other.stop()))
        alone.append(_tokens_per_s(clients.other.run("samples", for_s=steps[-1]["wall_s"], **load)))
    setting = f"every {every_s:g} s" if every_s else "without pause"
    figures = {
        "beside_tokens_per_s": median(beside), "alone_tokens_per_s": median(alone), "all_beside": beside, "all_alone": alone,
        "share": median(with_it / without for with_it, without in zip(beside, alone, strict=True)),
    }  # fmt: skip
    return [latencies_of("publish step", setting, merged(steps)) | figures]


def _tokens_per_s(result: Result) -> float:
    return float(result["num_tokens"] / result["wall_s"])


def measure_many_at_once(server: PlaitServer, clients: Clients, sizes: Sizes) -> list[Row]:
    """Through the SDK; the other tenant samples meanwhile. Twice: what the first burst leaves must not be added to."""
    idle = latencies_of("16-token sample", "before", _samples(clients, sizes))
    rows = [idle]
    for number in range(2):
        before_bytes = server.rss_bytes()
        with peak_of(server.rss_bytes) as peak_bytes:
            clients.other.start("samples", max_tokens=SAMPLE_TOKENS)
            burst = clients.busy.run("sdk_samples", count=sizes.num_at_once, max_tokens=SAMPLE_TOKENS)
            other = clients.other.stop()
        rows.append(
            latencies_of("16-token sample", f"beside burst {number}", other)
            | {
                "burst": burst["count"], "whole": burst["whole"], "burst_s": burst["wall_s"],
                "burst_tokens_per_s": burst["num_tokens"] / burst["wall_s"],
                "rss_before_bytes": before_bytes, "rss_peak_bytes": peak_bytes[0],
            }
        )  # fmt: skip
    return rows
