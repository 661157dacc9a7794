"""Estimates are arithmetic on the settings, and agree with what is really allocated."""

from pathlib import Path

import pytest
import torch

from plait.config.explain import estimate_run
from plait.config.load import parse_settings
from plait.config.run import RunSettings
from plait.config.task_sizes import count_adapter_parameters, count_evaluations
from plait.types.model import ModelConfig, RopeScaling

SMOLLM2 = ModelConfig(
    family="llama",
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    rms_norm_epsilon=1e-5,
    rope_theta=100000.0,
    rope_scaling=RopeScaling(),
    tied_embeddings=True,
    max_context_tokens=8192,
)


def parse(task: str = "", head: str = "") -> RunSettings:
    environment = "environment = { kind = 'calculator' }"
    return parse_settings(f"{head}\n[[tasks]]\nname = 'add'\n{environment}\n{task}\n", Path("/nowhere"))


def test_sizes_of_a_step() -> None:
    sizes = estimate_run(parse("groups_per_step = 4\ngroup_size = 6\nsampling = { max_new_tokens = 10 }"), SMOLLM2).tasks[0]
    assert sizes.trajectories_per_step == 4 * 6
    assert sizes.sampled_tokens_per_step == 4 * 6 * 10 * 2
    assert sizes.evaluation_tokens == 2 * 64 * 10 * 2


@pytest.mark.parametrize(
    ("evaluation", "expected"), [("questions = 0", 0), ("", 2), ("every_steps = 5", 5), ("every_steps = 20", 2)]
)
def test_number_of_evaluations(evaluation: str, expected: int) -> None:
    assert count_evaluations(parse(f"evaluation = {{ {evaluation} }}").tasks[0]) == expected


def test_adapter_parameters_match_real_matrices() -> None:
    task = parse("lora = { rank = 3, target_modules = ['q_proj', 'k_proj', 'down_proj', 'lm_head'] }").tasks[0]
    with torch.device("meta"):
        layer = [torch.nn.Linear(576, 576), torch.nn.Linear(576, 192), torch.nn.Linear(1536, 576)]
        linears = [*(layer * 30), torch.nn.Linear(576, 49152)]
    assert count_adapter_parameters(task.lora, SMOLLM2) == sum(3 * (linear.in_features + linear.out_features) for linear in linears)


def test_memory_names_its_parts() -> None:
    estimate = estimate_run(parse(), SMOLLM2)
    by_name = {need.name: need.size_bytes for need in estimate.memory}
    assert by_name["model"] == 2 * 2 * SMOLLM2.num_parameters
    assert by_name["cache"] == 65536 * 2 * 30 * 3 * 64 * 2
    assert by_name["optimizer"] == 3 * 4 * estimate.tasks[0].adapter_parameters
    assert estimate.memory_bytes == sum(by_name.values())


def test_a_shared_worker_holds_the_model_once() -> None:
    shared = estimate_run(parse(head="workers = { layout = 'shared' }"), SMOLLM2)
    split = estimate_run(parse(), SMOLLM2)
    assert shared.memory[0].size_bytes * 2 == split.memory[0].size_bytes
    assert shared.time_s is not None
    assert split.time_s is not None
    assert shared.time_s >= split.time_s


def test_activations_fit_the_measured_peak() -> None:
    """A float32 step of 2368 tokens on SmolLM2 took 8.7 GB (ENGINE-NOTES), model and adapters included."""
    head = "model = { dtype = 'float32', max_context_tokens = 256 }\ntraining = { micro_batch_tokens = 2368 }"
    activations = next(need for need in estimate_run(parse(head=head), SMOLLM2).memory if need.name == "activations")
    assert activations.size_bytes == pytest.approx(7.5e9, rel=0.3)
    checkpointed = parse(head=head.replace("2368 }", "2368, checkpoint_layers = true }"))
    assert next(need for need in estimate_run(checkpointed, SMOLLM2).memory if need.name == "activations").size_bytes < 1e9


def test_disk_follows_retention() -> None:
    text = "steps = 100"
    often = estimate_run(parse(text, "state = { keep_every_steps = 1 }"), SMOLLM2)
    seldom = estimate_run(parse(text, "state = { keep_every_steps = 50 }"), SMOLLM2)
    assert often.disk[0].size_bytes == 25 * seldom.disk[0].size_bytes


def test_no_time_for_a_gpu() -> None:
    assert estimate_run(parse(), SMOLLM2, device="cuda").time_s is None


def test_all_weights_are_counted() -> None:
    full = estimate_run(
        parse("training = 'full'", head="engine = { full_policies = 3 }\nworkers = { rollout_engines = 2 }"), SMOLLM2
    )
    memory, disk = ({need.name: need.size_bytes for need in needs} for needs in (full.memory, full.disk))
    assert memory["full tasks"] == (4 + 8 + 8 + 2) * SMOLLM2.num_parameters
    assert memory["full policies"] == 2 * 3 * 2 * SMOLLM2.num_parameters
    assert disk["full records"] == 4 * 12 * SMOLLM2.num_parameters
    assert (memory["adapters"], disk["records"]) == (0, 0)
    adapter = estimate_run(parse(), SMOLLM2)
    assert not {need.name for need in (*adapter.memory, *adapter.disk)} & {"full tasks", "full policies", "full records"}
    assert full.tasks[0].training_s == pytest.approx(1.5 * adapter.tasks[0].training_s)
