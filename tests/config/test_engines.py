"""Settings of rollout engines: what cannot be, and what they need."""

from pathlib import Path

import pytest

from plait.config.explain import estimate_run
from plait.config.load import effective_toml, parse_settings, with_ray
from plait.config.load_server import load_server_settings
from plait.config.run import RunSettings
from plait.config.store import StoreSettings
from plait.types.errors import ConfigError
from tests.config.test_explain import SMOLLM2

TASK = "[[tasks]]\nname = 'add'\nenvironment = { kind = 'calculator' }\n"
TOKEN_BYTES = 2 * 30 * 3 * 64 * 2


def store(keys: str, host: int = 999) -> str:
    return f"engine = {{ host_tokens = {host}, store = {{ {keys} }} }}"


def parse(head: str = "") -> RunSettings:
    return parse_settings(head + "\n" + TASK, Path("/nowhere"))


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ("workers = { layout = 'shared', rollout_engines = 2 }", "workers.rollout_engines = 2 needs processes of their own"),
        (
            "engine = { cache_tokens = 512 }",
            "engine.cache_tokens = 512 cannot hold one sequence of model.max_context_tokens = 1024",
        ),
        ("engine = { cache_tokens = 65536 }", "engine.cache_tokens = 65536 has no effect above engine.slot_tokens = 32768"),
        ("engine = { disk_tokens = 9 }", "engine.disk_tokens = 9 is reached through engine.host_tokens, which is 0"),
        ("engine = { host_token = 9 }", "did you mean 'host_tokens'?"),
        ("engine = { scheduling = 'contxt' }", 'did you mean "context"?'),
        (
            store("kind = 'file', tokens = 99", host=0),
            'engine.store.kind = "file" is reached through engine.host_tokens, which is 0',
        ),
        (store("kind = 'mooncake', tokens = 99"), 'engine.store.address = "" is not where mooncake_master is: give "host:port"'),
        (store("kind = 'mooncake', tokens = 99, address = 'ten:0'"), 'engine.store.address = "ten:0" is not where'),
        (
            store("kind = 'file', tokens = 99, address = 'a:1'"),
            'engine.store.address = "a:1" has no effect with engine.store.kind = "file": remove it, or choose "mooncake"',
        ),
        (
            store("kind = 'mooncake', tokens = 99, address = 'a:1', device = 'mlx5_0'"),
            'engine.store.device = "mlx5_0" has no effect with engine.store.protocol = "tcp": choose "rdma"',
        ),
        (store("kind = 'files', tokens = 99"), 'did you mean "file"?'),
        (store("kind = 'file'"), "engine.store.tokens"),
        ("engine = { kind = 'vllm', store = { kind = 'file', tokens = 99 } }", 'engine.store.kind = "file" has no effect on vLLM'),
        ("workers = { ray_address = 'local' }", 'workers.ray_address = "local" has no effect without workers.executor = "ray"'),
        (
            "workers = { ray_placement = 'spread' }",
            'workers.ray_placement = "spread" has no effect without workers.executor = "ray"',
        ),
        ("engine = { kind = 'vllm', disk_tokens = 9 }", "engine.disk_tokens = 9 has no effect on vLLM"),
        ("engine = { draft_paths = 2 }", 'engine.draft_paths = 2 has no effect with engine.drafting = "off": choose "auto" there'),
        ("engine = { draft_history = true }", 'engine.draft_history = true has no effect with engine.drafting = "off": choose'),
        ("workers = { order = 'fifo' }", 'workers.order has no effect with workers.layout = "split"'),
        ("workers = { host_bytes = 9 }", 'workers.host_bytes has no effect with workers.layout = "split"'),
        (
            "workers = { executor = 'thread' }\nengine = { kind = 'vllm', python = '/x/python' }",
            'engine.python = "/x/python" has no effect on workers.executor = "thread"',
        ),
        ("workers = { rollout_engine = 2 }", "did you mean 'rollout_engines'?"),
    ],
)
def test_what_cannot_be_is_refused(head: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(head)
    assert problem in caught.value.message


def test_the_command_line_can_put_workers_on_a_ray_cluster() -> None:
    workers = with_ray(parse("workers = { rollout_engines = 2 }"), "10.0.0.5:6379").workers
    assert (workers.executor, workers.ray_address, workers.rollout_engines) == ("ray", "10.0.0.5:6379", 2)
    with_store = with_ray(parse(store("kind = 'file', tokens = 99")), "auto")
    assert (with_store.engine.host_tokens, with_store.engine.store) == (999, StoreSettings(kind="file", tokens=99))


def test_an_engines_capacity_is_its_slots_unless_it_is_given() -> None:
    assert parse().engine.capacity_tokens == parse().engine.slot_tokens
    assert parse("engine = { cache_tokens = 2048 }").engine.capacity_tokens == 2048


def test_each_engine_has_a_model_and_a_cache_and_they_share_the_tiers() -> None:
    text = "workers = { rollout_engines = 3 }\nengine = { host_tokens = 1000, disk_tokens = 5000 }"
    one, three = estimate_run(parse(), SMOLLM2), estimate_run(parse(text), SMOLLM2)
    memory_of_one = {need.name: need.size_bytes for need in one.memory}
    memory_of_three = {need.name: need.size_bytes for need in three.memory}
    assert memory_of_three["model"] == 2 * memory_of_one["model"]
    assert memory_of_three["cache"] == 3 * memory_of_one["cache"]
    assert memory_of_three["host cache"] == 1000 * TOKEN_BYTES
    assert {need.name: need.size_bytes for need in three.disk}["disk cache"] == 5000 * TOKEN_BYTES
    assert three.tasks[0].rollout_s == pytest.approx(one.tasks[0].rollout_s / 3)


@pytest.mark.parametrize("kind", ["file", "mooncake"])
def test_a_store_between_nodes_needs_memory_or_disk(kind: str) -> None:
    address = ", address = 'a:1'" if kind == "mooncake" else ""
    settings = parse(store(f"kind = '{kind}', tokens = 7000{address}"))
    assert parse_settings(effective_toml(settings), Path("/nowhere")).engine == settings.engine
    estimate = estimate_run(settings, SMOLLM2)
    needs = estimate.memory if kind == "mooncake" else estimate.disk
    assert {need.name: need.size_bytes for need in needs}["cache store"] == 7000 * TOKEN_BYTES


def test_a_server_checks_its_engines_too(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("workers = { layout = 'shared', rollout_engines = 2 }\n")
    with pytest.raises(ConfigError, match="rollout_engines = 2 needs processes of their own"):
        load_server_settings(file, {})
