"""Models that train all weights in a worker group: the same bits as alone, within the device's budget."""

from pathlib import Path
from typing import Any

from plait.cluster.messages import ROLLOUT, TRAIN, Ready
from plait.cluster.model_messages import CallDone, CallFailed, ModelOpened, OpenModel
from plait.types.chunks import Chunk
from plait.types.policy import AdapterRef
from plait.types.sampling import SamplingParams
from tests.cluster.groups.hosts import DrivenHost
from tests.cluster.models import LORA, backward, rows, step


def open_full(host: DrivenHost, deployment: str) -> Any:
    folder = host.folder / "models" / deployment
    return host.call(deployment, OpenModel("m", "local", LORA, str(folder), training="full"))


def chunk(ref: AdapterRef, number: int) -> Chunk:
    return Chunk(f"r{number}", ref.policy, tuple(range(5, 45)), 4, SamplingParams(4, seed=number), adapter=ref)


def trained(host: DrivenHost, deployments: tuple[str, ...]) -> dict[str, list[object]]:
    """Two steps of each by turns, and a sample of each version; gradients wait while the others run."""
    results: dict[str, list[object]] = {name: [] for name in deployments}
    for name in deployments:
        assert isinstance(opened := open_full(host, name), ModelOpened), opened
    for number in range(2):
        for name in deployments:
            done = host.call(name, backward(3 * number + 1, model_id="m"))
            assert isinstance(done, CallDone), done
            results[name].append(rows(done))
        for name in deployments:
            done = host.call(name, step(3 * number + 2, model_id="m"))
            (sampled,) = host.sample(name, chunk(done.ref, number))
            results[name] += [done.ref.digest, done.metrics, sampled.tokens, sampled.logprobs]
    return results


def footprint(folder: Path) -> int:
    host = DrivenHost(folder)
    assert isinstance(host.add("x"), Ready)
    trained(host, ("x",))
    size = host.host.states["x"].num_bytes
    host.memory.close()
    return size


def test_full_training_by_turns_has_the_bits_of_training_alone(tmp_path: Path) -> None:
    host = DrivenHost(tmp_path / "together", device_bytes=footprint(tmp_path / "measured"))
    for name in ("a", "b"):
        assert isinstance(host.add(name), Ready)
    together = trained(host, ("a", "b"))
    alone = DrivenHost(tmp_path / "alone")
    alone.add("a")
    assert trained(alone, ("a",))["a"] == together["a"] == together["b"]


def test_a_full_model_for_which_there_is_no_room_is_refused(tmp_path: Path) -> None:
    host = DrivenHost(tmp_path / "measured")
    host.add("a", roles=(ROLLOUT, TRAIN))
    size = host.host.states["a"].num_bytes
    small = DrivenHost(tmp_path / "small", device_bytes=size + 200_000)
    small.add("a")
    refused = open_full(small, "a")
    assert isinstance(refused, CallFailed), refused
    assert "workers.device_bytes" in refused.error
    assert isinstance(small.call("a", OpenModel("l", "local", LORA, str(tmp_path / "l"))), ModelOpened)
