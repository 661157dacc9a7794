"""The benchmark of drafting: what it replays and compares, on a tiny model, and how the figures are drawn up."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.common import Timing
from benchmarks.drafting_adversarial import lies_of, lies_row, row_of
from benchmarks.drafting_groups import Group, make_groups, sample
from benchmarks.drafting_model import ADAPTIVE, OFF, Model, Outcome
from benchmarks.drafting_replay import SIBLINGS, Replayed, replay, replay_answer, replay_rows
from benchmarks.drafting_speed import SYSTEMS, speed_rows, tail_of
from benchmarks.drafting_table import draw_figure, headlines_of, print_acceptance, print_adversarial, print_speed
from plait.drafting.draft import DraftQuery
from plait.drafting.local_drafter import LocalDrafter
from plait.models.tiny import make_tiny_model
from plait.models.tokenizer import Tokenizer
from plait.types.sampling import SamplingParams

SAMPLING = SamplingParams(12)
ALIKE = Group("sums/0", "sums", "trained", (1, 2, 3), 0, tuple((10, 11, 12, 13, 14, 15, 20 + i) for i in range(16)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return Model(folder, "float32", 8)


@pytest.fixture(scope="module")
def groups(folder: Path, model: Model) -> list[Group]:
    return sample(model, make_groups(Tokenizer.load(folder), 1), SAMPLING, 4)


def test_a_known_sibling_saves_all_steps_but_where_answers_part() -> None:
    assert replay_answer((1, 2, 3), (10, 11, 12, 13), [], 1) == Replayed(4, 4)
    assert replay_answer((1, 2, 3), (10, 11, 12, 13), [(10, 11, 12, 13)], 1) == Replayed(4, 1)
    assert replay_answer((1, 2, 3), (10, 11, 99, 13), [(10, 11, 12, 13)], 1) == Replayed(4, 2)


def test_of_several_paths_the_right_one_counts() -> None:
    siblings = [(10, 11, 5), (10, 11, 5), (10, 12, 6, 7)]
    assert replay_answer((1, 2), (10, 12, 6, 7), siblings, 1).steps > replay_answer((1, 2), (10, 12, 6, 7), siblings, 4).steps


def test_more_siblings_give_more_tokens_a_step() -> None:
    found = [replay(ALIKE, siblings, 1).tokens_per_step for siblings in SIBLINGS]
    assert found[0] < 1.5
    assert min(found[1:]) == 7
    rows = replay_rows([ALIKE])
    assert {row["tokens_per_step"] for row in rows if row["task"] == "all"} == {row["tokens_per_step"] for row in rows}


def test_the_longest_answers_run_and_the_others_are_known() -> None:
    group = replace(ALIKE, answers=((1,), (1, 2, 3), (1, 2), (1, 2, 3, 4)))
    tail = tail_of([group, replace(group, name="sums/1")], 2, 7, SAMPLING)
    assert [chunk.request_id for chunk in tail.chunks] == ["sums/0/3", "sums/0/1"]
    assert tail.known == {"sums/0": ((1, 2), (1,))}
    assert len(tail_of([group, replace(group, name="sums/1")], 2, 8, SAMPLING).chunks) == 4


def test_all_systems_draw_what_was_sampled(model: Model, groups: list[Group]) -> None:
    rows = speed_rows(model, tail_of(groups, 2, 40, SAMPLING), {"stage": "base"}, {ADAPTIVE: model.new_planner(ADAPTIVE)}, 2)
    assert [row["system"] for row in rows] == list(SYSTEMS)
    assert all(row["same_outputs"] and row["tokens"] == rows[0]["tokens"] for row in rows)
    assert rows[0]["proposed"] == 0 < rows[2]["proposed"]
    assert rows[0]["tokens_per_verify_step"] == 1
    group = groups[0]
    results = model.run(OFF, [group.chunk(1, SAMPLING)], 1).results
    assert results[f"{group.name}/1"].tokens == group.answers[1]


def test_lies_are_drafted_at_every_step_and_never_hold() -> None:
    answer = (5, 16, 7, 28, 9, 40)
    drafter = LocalDrafter()
    drafter.register_group("g", (1, 2, 3))
    drafter.append("g", "lie", lies_of([answer], 100)[0])
    drafter.append("g", "own", answer[:1])
    for place in range(2, len(answer)):
        drafter.append("g", "own", answer[place - 1 : place])
        draft = drafter.batch_speculate([DraftQuery("g", "own")])[0]
        assert draft.probabilities[0] >= 0.5
        assert draft.tokens[0] != answer[place]


def test_the_adversary_runs_on_the_engine(model: Model, groups: list[Group]) -> None:
    row = lies_row(Console(quiet=True), model, groups[:1], SAMPLING, 2)
    assert row["same_outputs"]
    assert row["pairs"] == 2
    assert row["tokens"] > 0


def outcome(cpu_s: float) -> Outcome:
    return Outcome(Timing(cpu_s, cpu_s), {})


def test_the_loss_is_the_median_of_pairs() -> None:
    row = row_of("noise", "float32", 8, [(outcome(1.0), outcome(ratio)) for ratio in (1.0, 1.01, 1.02, 1.03, 9.0)])
    assert row["ratio"] == pytest.approx(1.02)
    assert row["ratio_quartiles"][0] == pytest.approx(1.005)


def speed_row(system: str, batch: int, gain: float, stage: str = "trained") -> dict[str, Any]:
    return {
        "dtype": "float32", "stage": stage, "batch": batch, "system": system, "tokens": 8, "tokens_per_s": 9.0, "cpu_s": 1.0,
        "gain": gain, "tokens_per_row_step": 1.5, "proposed": 4, "accepted": 2, "same_outputs": True, "tokens_per_verify_step": 1.7,
        "branched": 0.4, "accepted_beside": 1,
    }  # fmt: skip


def test_claims_and_tables_are_drawn_up(tmp_path: Path) -> None:
    acceptance = replay_rows([ALIKE, replace(ALIKE, stage="base")])
    speed = [
        speed_row(OFF, 1, 1.0),
        speed_row(ADAPTIVE, 1, 1.5),
        speed_row(ADAPTIVE, 8, 1.3),
        speed_row(ADAPTIVE, 32, 0.98, "base"),
    ]
    adversarial = [row_of("noise", "float32", 8, [(outcome(1.0), outcome(1.04))] * 3)]
    found = headlines_of(acceptance, speed, adversarial)
    assert found["tokens_per_step_1_path"]["met"]
    assert found["gain_batch_1_to_8"]["value"] == 1.3
    assert found["adaptive_never_below"]["value"] == 0.98
    assert not found["adversarial_noise"]["met"]
    assert found["same_outputs"]["met"]
    console = Console(record=True, width=150, quiet=True)
    print_acceptance(console, acceptance)
    print_speed(console, speed)
    print_adversarial(console, adversarial)
    draw_figure(tmp_path / "figure.png", acceptance, speed)
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_without_rows_nothing_is_claimed() -> None:
    assert not any(claim["met"] for claim in headlines_of([], [], []).values())
