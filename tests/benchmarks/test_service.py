"""The benchmark of the service: its client and its loads against a real server on a tiny model, and how figures are drawn up."""

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from benchmarks.service_client import ClientProcess
from benchmarks.service_headlines import headlines_of
from benchmarks.service_measures import latencies_of, merged, percentile
from benchmarks.service_server import VOCAB_SIZE, PlaitServer, peak_of
from benchmarks.service_skyrl import row_of, script_client
from benchmarks.service_wire import WireClient, WireFailure, datums
from plait.models.tiny import make_tiny_model
from plait.server.wire.requests import parse_forward_backward
from plait.server.wire.tinker_wire_pb2 import ForwardBackwardRequest

SETTINGS = {"ENGINE__MAX_ROWS": 16, "ENGINE__SLOT_TOKENS": 4096, "ENGINE__POOL_TOKENS": 4096, "MODEL__MAX_CONTEXT_TOKENS": 256}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaitServer]:
    folder = tmp_path_factory.mktemp("service")
    with closing(PlaitServer(folder, make_tiny_model(folder / "model"), SETTINGS)) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: PlaitServer) -> Iterator[ClientProcess]:
    with closing(ClientProcess.of_tenant(server.url, server.key_of("one"), server.model, "one")) as client:
        yield client


def test_loads_do_what_they_were_asked_for(client: ClientProcess) -> None:
    sampled = client.run("samples", max_tokens=3, count=5, lanes=2)
    assert (sampled["count"], sampled["num_tokens"], len(sampled["latencies_s"])) == (5, 15, 5)
    fetched = client.run("results", count=6, lanes=3, max_tokens=2)
    assert fetched["count"] == 6
    stepped = client.run("optimizer_steps", count=4, lanes=2)
    assert len(stepped["latencies_s"]) == 4
    assert sum(stepped["latencies_s"]) < sum(stepped["pair_latencies_s"])
    assert client.run("publishes", count=2, every_s=0)["count"] == 2
    through_sdk = client.run("sdk_samples", count=8, max_tokens=4)
    assert (through_sdk["whole"], through_sdk["num_tokens"]) == (8, 32)


def test_a_load_without_an_end_goes_on_until_it_is_stopped(client: ClientProcess) -> None:
    client.start("forward_backwards", num_datums=1, num_tokens=8)
    assert client.stop()["count"] >= 0
    assert client.run("samples", max_tokens=1, for_s=0.2)["wall_s"] >= 0.2


def test_what_the_server_refuses_is_an_error_of_the_client(client: ClientProcess, server: PlaitServer) -> None:
    with pytest.raises(RuntimeError, match="WireFailure"):
        client.run("forward_backwards", num_datums=1, num_tokens=1000, count=1)
    with pytest.raises(WireFailure, match="401"):
        asyncio.run(WireClient(server.url, "tml-wrong").open())


def test_the_script_that_other_servers_get_too(server: PlaitServer) -> None:
    with closing(script_client("plait", sys.executable, server.url, server.key_of("script"), server.model)) as client:
        assert client.run("train", count=2, num_datums=2, num_tokens=8)["count"] == 2
        assert client.run("sample", num_prompts=3, prompt_tokens=4, max_tokens=5)["num_tokens"] == 15
        with pytest.raises(RuntimeError, match="TypeError"):
            client.run("sample")


def test_memory_is_that_of_the_server_and_its_workers(server: PlaitServer) -> None:
    assert server.rss_bytes() > 300 * 2**20
    looks: list[int] = []

    def measure() -> int:
        looks.append([5, 9, 1][min(len(looks), 2)])
        return looks[-1]

    with peak_of(measure) as peak:
        deadline_s = time.monotonic() + 60
        while len(looks) < 4:
            assert time.monotonic() < deadline_s, "it is not looked at"
            time.sleep(0.01)
    assert peak == [9]


def test_a_request_is_put_together_of_its_head_and_its_data() -> None:
    head = ForwardBackwardRequest(model_id="m", seq_id=3, loss_fn="cross_entropy")
    call = parse_forward_backward(head.SerializeToString() + datums(2, 5, VOCAB_SIZE), None)
    assert (call.model_id, call.seq_id, len(call.datums)) == ("m", 3, 2)
    assert list(call.datums[0].tokens[1:]) == list(call.datums[0].inputs["target_tokens"][:-1])


def test_figures_of_latencies() -> None:
    result = {"count": 20, "wall_s": 4.0, "latencies_s": [i / 10 for i in range(1, 21)]}
    row = latencies_of("m", "s", result)
    assert (row["per_s"], row["median_s"], row["p95_s"], row["max_s"]) == (5.0, pytest.approx(1.05), 1.9, 2.0)
    assert percentile([3.0], 0.95) == 3.0
    assert merged([result, result])["count"] == 40


def made_up_rows() -> list[dict[str, Any]]:
    def latency(measure: str, setting: str, median_s: float = 0.01, **more: Any) -> dict[str, Any]:
        row = {
            "measure": measure,
            "setting": setting,
            "count": 10,
            "per_s": 50.0,
            "median_s": median_s,
            "p95_s": 0.02,
            "max_s": 0.03,
        }
        return row | more

    burst = {"burst": 100, "whole": 100, "rss_before_bytes": 900, "rss_peak_bytes": 1000}
    return [
        latency("protobuf result", "round 0", per_s=1500.0),
        latency("protobuf result", "round 1", per_s=1200.0),
        latency("16-token sample", "idle"),
        latency("16-token sample", "while another trains", median_s=0.0125),
        latency("short training call", "behind a long one", slice_s=0.1, longest_wait_slices=1.25),
        latency("publish step", "every 1 s", share=0.97, beside_tokens_per_s=97.0, alone_tokens_per_s=100.0),
        latency("16-token sample", "before"),
        latency("16-token sample", "beside burst 0", **burst),
        latency("16-token sample", "beside burst 1", **burst),
    ]


def test_headlines_are_met_or_not() -> None:
    found = headlines_of(made_up_rows())
    values = {name: value["value"] for name, value in found.items()}
    assert values["protobuf_results_per_s"] == 1500
    assert values["idle_over_busy_latency_of_another_tenant"] == pytest.approx(0.8)
    assert values["quantum_over_longest_wait"] == pytest.approx(1.6)
    assert values["tokens_per_s_beside_publishes"] == 0.97
    assert values["samples_at_once_kept"] == 1
    assert values["memory_before_over_peak"] == 0.9
    assert {name for name, value in found.items() if not value["met"]} == {"training_steps_vs_skyrl", "sampled_tokens_vs_skyrl"}


def test_a_lost_sample_or_a_slow_neighbour_is_told() -> None:
    rows = made_up_rows()
    rows[3]["median_s"], rows[-1]["whole"] = 0.02, 99
    found = headlines_of(rows)
    assert not found["idle_over_busy_latency_of_another_tenant"]["met"]
    assert not found["samples_at_once_kept"]["met"]


def test_the_fastest_round_of_each_system_counts() -> None:
    plait = [{"steps_per_s": 5.0, "sampled_tokens_per_s": 90.0}, {"steps_per_s": 6.0, "sampled_tokens_per_s": 80.0}]
    skyrl = [{"steps_per_s": 2.0, "sampled_tokens_per_s": 20.0}]
    found = headlines_of([*made_up_rows(), row_of("plait", plait), row_of("skyrl", skyrl)])
    assert found["training_steps_vs_skyrl"]["value"] == 3.0
    assert found["sampled_tokens_vs_skyrl"]["value"] == 4.5
    assert found["training_steps_vs_skyrl"]["met"]
