"""What users of other servers have suffered, shown not to be so here. What must hold, and the fault that it rules out:

TINKER.md section 3
1. test_sampling_from_an_old_snapshot_leaves_training_alone
2. test_gradients_are_summed
3. test_sampling_client: test_prompt_logprobs_have_the_prompts_length
4. test_sampling_client: test_the_models_end_stops_unless_other_stops_are_given
   test_default_bounds_of_cispo; test_every_loss_differs
5. test_failed_work_is_told_at_once (P15), test_whatever_fails_in_a_worker_is_told_at_once,
   test_a_sample_that_fails_in_the_engine_is_told_at_once
6. test_another_tenants_sample_does_not_wait_for_training
7. test_many_samples_at_once_are_all_served (P24)
8. test_without_a_key_nothing_opens (P70)
9. test_finished_sessions_hold_no_adapter; tests/server/test_sessions.py of lost ones

FAULTS.md
P04 test_a_prompts_cache_is_no_other_tenants (kv dtype and base digest: tests/kv/test_keys.py)
P07 test_more_models_than_the_trainer_holds
P12 test_a_repeated_call_runs_once, test_another_payload_under_a_known_seq_id_is_refused
    test_another_payload_under_a_known_samples_seq_id_is_refused
P14 test_calls_run_in_order_however_they_arrive, test_a_missing_call_holds_back_what_follows
P16 test_restart.py; tests/server/test_crash_points.py
P19 test_every_loss_differs, test_unknown_losses_and_settings_are_refused
P20 test_training_client: test_ragged_data_come_back_as_they_went
P23 test_both_kinds_of_checkpoints_under_one_name
P32 test_a_checkpoint_with_a_flipped_bit_is_refused
P62 test_the_first_error_is_shown, test_servers_start_side_by_side; tests/server/database/test_two_servers.py, test_server_lock.py
P70 test_defaults_are_safe, test_names_do_not_leave_the_data_folder, and test_tenants.py
"""

import concurrent.futures
import contextlib
import math
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tinker
from tinker import types
from tinker.proto import tinker_public_pb2 as public

from plait.config.server import OperationSettings
from tests.server.e2e.data import ADAM, PROMPT, datum, logprobs_of, loss, sampled, step, supervised, training_client
from tests.server.e2e.wire import Wire, metrics
from tests.server.server_process import ALIAS, ServerProcess, running_server

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
AT_ONCE_S = OperationSettings().poll_s / 2
"""Failures take milliseconds. Who hears of one only when the server answers "not yet", or by asking again, waits for longer."""


# ---- TINKER.md section 3


def test_sampling_from_an_old_snapshot_leaves_training_alone(server: Any) -> None:
    client = training_client(server.client_for())
    old = client.save_weights_and_get_sampling_client().result()
    before = old.compute_logprobs(PROMPT).result()
    step(client)
    trained = loss(client)
    new = client.save_weights_and_get_sampling_client().result()
    assert new.compute_logprobs(PROMPT).result() != before
    assert old.compute_logprobs(PROMPT).result() == before
    sampled(old, 2)
    assert loss(client) == trained


def test_gradients_are_summed(server: Any) -> None:
    once, twice = training_client(server.client_for()), training_client(server.client_for())
    twice.forward_backward([supervised()], "cross_entropy")
    assert step(twice)["grad_norm"] == pytest.approx(2 * step(once)["grad_norm"], rel=1e-5)


def test_default_bounds_of_cispo(server: Any) -> None:
    """0 and 4: a ratio of 3 counts in full, one of 8 as 4."""
    client = training_client(server.client_for())
    logprob = float(logprobs_of(client.forward([supervised(1)], "cross_entropy").result())[0][0])
    for ratio, counts in ((3.0, 3.0), (8.0, 4.0), (0.05, 0.05)):
        one = datum([8], target_tokens=[15], logprobs=[logprob - math.log(ratio)], advantages=[1.0])
        output = client.forward([one], "cispo").result()
        assert output.metrics["loss:sum"] == pytest.approx(-counts * logprob, rel=1e-3)


def test_failed_work_is_told_at_once(server: Any) -> None:
    """P15: of each kind of call; the answer is 200 with error and category, which the SDK does not try again."""
    wire = Wire(server)
    unknown = "tinker://nobody:train:0/weights/none"
    bad = datum([5], target_tokens=[999], weights=[1.0])
    failing = [
        lambda model: wire.forward_backward(model, 1, bad),
        lambda model: wire.post("load_weights", model_id=model, seq_id=1, path=unknown, optimizer=True),
        lambda model: wire.post(
            "save_weights_external", model_id=model, seq_id=1, path="a", age_encryption_recipients=["age1"]
        ),
    ]  # fmt: skip
    for send in failing:
        model_id = wire.model()
        start_s = time.monotonic()
        status, made = send(model_id)
        assert status == 200, made
        result = wire.result(made["request_id"])
        assert (set(result), result["category"]) == ({"error", "category"}, "user"), result
        assert time.monotonic() - start_s < AT_ONCE_S
    status, content = wire.post("retrieve_future", request_id="nothing:call:1")
    assert status == 404, content


def test_whatever_fails_in_a_worker_is_told_at_once(server: Any) -> None:
    """P15: each kind of call that writes, where a file is in the place of the folder that it needs; and a later one runs."""
    wire = Wire(server)
    sends = {
        "steps": lambda model, seq_id: wire.optim_step(model, seq_id),
        "weights": lambda model, seq_id: wire.post("save_weights", model_id=model, seq_id=seq_id, path="a"),
        "sampler_weights": lambda model, seq_id: wire.post("save_weights_for_sampler", model_id=model, seq_id=seq_id, path="a"),
    }
    for folder, send in sends.items():
        model_id = wire.model()
        place = _model_folder(server, model_id) / folder
        with _unusable(place):
            start_s = time.monotonic()
            failed = wire.result(send(model_id, 1)[1]["request_id"])
            assert (set(failed), failed["category"]) == ({"error", "category"}, "server"), (folder, failed)
            assert time.monotonic() - start_s < AT_ONCE_S
        assert "error" not in wire.result(send(model_id, 2)[1]["request_id"])


def test_a_sample_that_fails_in_the_engine_is_told_at_once(server: Any) -> None:
    """P15: its weights have gone from the disk; and another sample is served."""
    wire = Wire(server)
    model_id = wire.model()
    saved = wire.result(wire.post("save_weights_for_sampler", model_id=model_id, seq_id=1, path="gone")[1]["request_id"])
    sampler = wire.must(
        "create_sampling_session", session_id=wire.session_id, model_path=saved["path"], sampling_session_seq_id=1
    )  # fmt: skip
    for weights in (_model_folder(server, model_id) / "sampler_weights").rglob("adapter_model.safetensors"):
        weights.unlink()
    start_s = time.monotonic()
    failed = wire.result(wire.sample(sampler["sampling_session_id"])[1]["request_id"])
    assert set(failed) == {"error", "category"}, failed
    assert time.monotonic() - start_s < AT_ONCE_S
    assert isinstance(wire.result(wire.sample(wire.sampler())[1]["request_id"]), bytes), "another one is served"


def _model_folder(server: Any, model_id: str) -> Path:
    return next(folder for folder in (server.folder / "data" / "tenants").glob("*/models/*") if folder.name == model_id)


@contextlib.contextmanager
def _unusable(folder: Path) -> Iterator[None]:
    """A file is where it was, or would be made."""
    aside = folder.with_name(f"{folder.name}.aside")
    was_there = folder.exists()
    if was_there:
        folder.rename(aside)
    folder.write_bytes(b"")
    try:
        yield
    finally:
        folder.unlink()
        if was_there:
            aside.rename(folder)


def test_another_tenants_sample_does_not_wait_for_training(server: Any) -> None:
    """Some are served, one after another, before all is trained that was sent before."""
    trainer = training_client(server.client_for(), rank=8)
    other = server.client_for(server.tenant().key).create_sampling_client(base_model=ALIAS).result()
    futures = [trainer.forward_backward([supervised(250, start=n) for n in range(64)], "cross_entropy") for _ in range(4)]
    for _ in range(4):
        assert sampled(other, max_tokens=8)
    is_training = not futures[-1].future().done()
    for future in futures:
        future.result()
    assert is_training


def test_many_samples_at_once_are_all_served(server: Any) -> None:
    """P24 and 7: two thousand samples by the SDK, and another tenant is served meanwhile."""
    client = server.client_for().create_sampling_client(base_model=ALIAS).result()
    other = server.client_for(server.tenant().key).create_sampling_client(base_model=ALIAS).result()
    params = types.SamplingParams(max_tokens=1, stop=[])
    futures = [client.sample(PROMPT, 1, params) for _ in range(2000)]
    start_s = time.monotonic()
    assert sampled(other, max_tokens=1)
    other_s = time.monotonic() - start_s
    responses = [future.result(timeout=120) for future in futures]
    all_s = time.monotonic() - start_s
    assert len({response.sequences[0].sequence_id for response in responses}) == 2000
    assert other_s < all_s


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("small"), SAMPLES__MAX_WAITING=8, QUOTAS__LIVE_ADAPTERS=2) as server:
        yield server


def test_more_than_may_wait_is_pushed_back(small_server: ServerProcess) -> None:
    """429 with a time to wait; the SDK sends again and gets all."""
    wire = Wire(small_server)
    sampler_id = wire.sampler()
    posted = (wire.http.post("/asample", json=_sample(sampler_id, seq_id, 200)) for seq_id in range(1000))
    refused = next(answer for answer in posted if answer.status_code == 429)
    assert float(refused.headers["retry-after"]) > 0
    client = small_server.client_for().create_sampling_client(base_model=ALIAS).result()
    futures = [client.sample(PROMPT, 1, types.SamplingParams(max_tokens=2)) for _ in range(12)]
    assert all(future.result(timeout=120).sequences for future in futures)


def _sample(sampler_id: str, seq_id: int, max_tokens: int) -> dict[str, Any]:
    return {
        "sampling_session_id": sampler_id, "seq_id": seq_id, "num_samples": 1,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [5, 6]}]},
        "sampling_params": {"max_tokens": max_tokens, "stop": []},
    }  # fmt: skip


OPEN_ROUTES = {"/healthz", "/readyz", "/metrics", "/api/v1/healthz", "/api/v1/external_weights/{run_id}/{name}/{file}"}
"""The last has a signature in its query."""


def test_without_a_key_nothing_opens(server: Any) -> None:
    routes = httpx.get(f"{server.url}/openapi.json", timeout=120).json()["paths"]
    open_routes = set()
    with server.http(key=None) as http:
        for path, methods in routes.items():
            for method in methods:
                status = http.request(method, f"{server.url}{path.replace('{', '').replace('}', '')}", json={}).status_code
                if status != 401:
                    open_routes.add(path)
    assert open_routes <= OPEN_ROUTES


def test_finished_sessions_hold_no_adapter(small_server: ServerProcess) -> None:
    for _ in range(3):
        with small_server.client_for() as service:
            training_client(service)
            training_client(service)
            with pytest.raises(tinker.APIStatusError, match="live_adapters"):
                training_client(service)


# ---- FAULTS.md


def test_a_prompts_cache_is_no_other_tenants(server: Any) -> None:
    """P04: the same tenant's second sampler of the base model finds the prompt; another tenant's does not."""
    prompt = types.ModelInput.from_ints([(n * n) % 300 + 5 for n in range(200)])

    def cached(key: str) -> int:
        client = server.client_for(key).create_sampling_client(base_model=ALIAS).result()
        return client.sample(prompt, 1, types.SamplingParams(max_tokens=1)).result().prompt_cache_hit_tokens

    one, two = server.tenant().key, server.tenant().key
    assert cached(one) == 0
    assert cached(one) > 0
    assert cached(two) == 0


def test_more_models_than_the_trainer_holds(server: Any) -> None:
    """P07: 12 models where 8 fit, in random turns with gradients that wait: each ends as if it had been alone."""
    service = server.client_for()
    clients = [training_client(service) for _ in range(12)]
    chooser = random.Random(0)
    turns = [index for index in range(12) for _ in range(2)]
    chooser.shuffle(turns)
    for index in turns:
        clients[index].forward_backward([supervised(start=index + 5)], "cross_entropy").result()
    norms = [client.optim_step(ADAM).result().metrics["grad_norm"] for client in clients]  # type: ignore[index]
    alone = training_client(service)
    alone.forward_backward([supervised(start=7)], "cross_entropy").result()
    assert step(alone, supervised(start=7))["grad_norm"] == norms[2]
    assert loss(alone) == loss(clients[2])
    assert len(set(norms)) == 12


def test_a_repeated_call_runs_once(server: Any) -> None:
    """P12: every request twice, at once and later; the weights are those of a clean run."""
    wire = Wire(server)
    clean, repeated = wire.model(), wire.model()
    for seq_id in (1, 3):
        assert wire.forward_backward(clean, seq_id)[0] == wire.optim_step(clean, seq_id + 1)[0] == 200
        first = wire.forward_backward(repeated, seq_id)
        assert wire.forward_backward(repeated, seq_id) == first
        step_first = wire.optim_step(repeated, seq_id + 1)
        assert wire.result(step_first[1]["request_id"])["metrics"]
        assert wire.optim_step(repeated, seq_id + 1) == step_first
        assert wire.forward_backward(repeated, seq_id) == first
    assert wire.loss(clean, 5) == wire.loss(repeated, 5)


def test_another_payload_under_a_known_seq_id_is_refused(server: Any) -> None:
    wire = Wire(server)
    model_id = wire.model()
    assert wire.optim_step(model_id, 1, 1e-2)[0] == 200
    status, content = wire.optim_step(model_id, 1, 1e-3)
    assert status == 422
    assert "seq_id 1" in content["detail"]
    assert wire.forward_backward(model_id, 1)[0] == 422
    assert wire.optim_step(model_id, 2)[0] == 200


def test_another_payload_under_a_known_samples_seq_id_is_refused(server: Any) -> None:
    """While it runs and after; the same one gets the first future."""
    wire = Wire(server)
    sampler_id = wire.sampler()
    first = wire.sample(sampler_id, seq_id=7, max_tokens=50)
    assert first[0] == 200
    assert wire.sample(sampler_id, seq_id=7, max_tokens=50) == first
    status, content = wire.sample(sampler_id, seq_id=7, max_tokens=51)
    assert status == 422
    assert "another payload" in content["detail"]
    assert wire.result(first[1]["request_id"])
    assert wire.sample(sampler_id, seq_id=7, max_tokens=51)[0] == 422
    assert wire.sample(sampler_id, seq_id=7, max_tokens=50) == first


@pytest.mark.parametrize("says_how_much", [True, False])
def test_a_strangers_large_body_is_not_read(server: Any, says_how_much: bool) -> None:
    """The answer comes while nearly all is still to be sent."""
    address = server.url.removeprefix("http://").split(":")
    for key in ("", "X-API-Key: tml-nobody\r\n"):
        with socket.create_connection((address[0], int(address[1])), timeout=120) as line:
            size = "content-length: 200000000" if says_how_much else "transfer-encoding: chunked"
            line.sendall(f"POST /api/v1/asample HTTP/1.1\r\nhost: x\r\n{key}{size}\r\n\r\n".encode())
            answer = b"".join(iter(lambda: line.recv(4096), b""))  # Up to the end: the connection is closed.
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b"key" in answer


def test_with_a_key_a_large_body_is_read(server: Any) -> None:
    with server.http() as http:
        assert http.post("/asample", json={"filling": "x" * 100_000}).status_code == 422
        assert http.post("/asample", content=iter([b"{", b"}"])).status_code == 422


def test_calls_run_in_order_however_they_arrive(server: Any) -> None:
    """P14: three models' calls in random orders, chunks too; each ends as in its serial run."""
    wire = Wire(server)
    serial = wire.model()
    calls = [("backward", 5), ("backward", 9), ("step", 0), ("backward", 20), ("step", 0)]

    def send(model_id: str, seq_id: int) -> dict[str, Any]:
        kind, start = calls[seq_id - 1]
        sent = (
            wire.forward_backward(model_id, seq_id, supervised(start=start))
            if kind == "backward"
            else wire.optim_step(model_id, seq_id)
        )
        assert sent[0] == 200, sent
        return sent[1]

    for seq_id in range(1, 6):
        wire.result(send(serial, seq_id)["request_id"])
    expected = wire.loss(serial, 6)
    models = [wire.model() for _ in range(3)]
    order = [(model_id, seq_id) for model_id in models for seq_id in range(1, 6)]
    random.Random(1).shuffle(order)
    for model_id, seq_id in order:
        send(model_id, seq_id)
    assert [wire.loss(model_id, 6) for model_id in models] == [expected] * 3


def test_a_missing_call_holds_back_what_follows(server: Any) -> None:
    """It waits as 408, runs when the missing one arrives, and a seq_id far off is refused."""
    wire = Wire(server)
    model_id = wire.model()
    late = wire.optim_step(model_id, 2)[1]["request_id"]
    with pytest.raises(httpx.ReadTimeout):
        wire.http.post("/retrieve_future", json={"request_id": late}, timeout=httpx.Timeout(60, read=1))
    assert wire.forward_backward(model_id, 1)[0] == 200
    assert wire.result(late)["metrics"]["grad_norm"] > 0
    status, content = wire.optim_step(model_id, 10_000)
    assert status == 422
    assert "ahead" in content["detail"]


def test_every_loss_differs(server: Any) -> None:
    """P19: off-policy by known amounts each loss has a gradient of its own."""
    wire, norms = Wire(server), {}
    probe = supervised(3)
    known = logprobs_of(training_client(server.client_for()).forward([probe], "cross_entropy").result())[0]
    advantages = [1.0, -0.5, 2.0]
    inputs = {"logprobs": (known - np.log([1.1, 3.0, 6.0])).tolist(), "advantages": advantages, "weights": advantages}
    targets = {"target_tokens": probe.loss_fn_inputs["target_tokens"]}
    off_policy = types.Datum(model_input=probe.model_input, loss_fn_inputs=targets | inputs)
    configs: dict[str, dict[str, Any]] = {"stable_reinforce": {"kl_coeff": 0.5}}
    for name in ("cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo", "stable_reinforce"):
        model_id = wire.model()
        status, made = wire.forward_backward(model_id, 1, off_policy, loss_fn=name, config=configs.get(name))
        assert status == 200, made
        assert "loss:sum" in metrics(wire.result(made["request_id"]))
        norms[name] = round(wire.result(wire.optim_step(model_id, 2)[1]["request_id"])["metrics"]["grad_norm"], 5)
    assert len(set(norms.values())) == len(norms), norms


@pytest.mark.parametrize(
    ("loss_fn", "config", "named"),
    [
        ("cross_entrpy", None, "cross_entrpy"),
        ("ppo", {"clip_low_treshold": 0.8}, "clip_low_treshold"),
        ("cross_entropy", {"beta": 0.1}, "beta"),
        ("ppo", {"clip_low_threshold": 2.0, "clip_high_threshold": 1.0}, "clip_low_threshold"),
        ("custom", None, "custom"),
    ],
)
def test_unknown_losses_and_settings_are_refused(server: Any, loss_fn: str, config: dict[str, Any] | None, named: str) -> None:
    """At once with 422; what the client sends next is served, for a refused call has used up its seq_id."""
    wire = Wire(server)
    model_id = wire.model()
    body = public.ForwardBackwardRequest(model_id=model_id, seq_id=1, loss_fn=loss_fn, loss_fn_config=config or {})
    refused = wire.http.post("/forward_backward", content=body.SerializeToString())
    assert refused.status_code == 422, refused.text
    assert named in refused.json()["detail"]
    assert wire.result(wire.optim_step(model_id, 2)[1]["request_id"])["category"] == "user"  # Its batch lacks the refused call.
    assert wire.forward_backward(model_id, 3)[0] == 200
    assert wire.result(wire.optim_step(model_id, 4)[1]["request_id"])["metrics"]["grad_norm"] > 0


def test_both_kinds_of_checkpoints_under_one_name(server: Any) -> None:
    """P23: a sampler's save does not touch the training checkpoint."""
    service = server.client_for()
    client = training_client(service)
    step(client)
    state = client.save_state("same").result().path
    kept = loss(client)
    step(client)
    weights = client.save_weights_for_sampler("same").result().path
    assert state != weights
    assert loss(service.create_training_client_from_state_with_optimizer(state).result()) == kept
    now = client.save_weights_and_get_sampling_client().result().compute_logprobs(PROMPT).result()
    assert service.create_sampling_client(model_path=weights).result().compute_logprobs(PROMPT).result() == now
    with pytest.raises(tinker.APIStatusError, match="sampler"):
        service.create_training_client_from_state(weights).result(timeout=120)


def test_a_checkpoint_with_a_flipped_bit_is_refused(server: Any) -> None:
    """P32: neither loaded nor sampled from; what is served goes on."""
    service = server.client_for()
    client = training_client(service)
    step(client)
    before = loss(client)
    path = client.save_state("torn").result().path
    weights = client.save_weights_for_sampler("torn").result().path
    for folder in (server.folder / "data").rglob("torn@*"):
        _flip_a_bit(folder / "adapter_model.safetensors")
    with pytest.raises(tinker.TinkerError, match=r"digest|damaged|differ|changed"):
        service.create_training_client_from_state(path).result(timeout=120)
    with pytest.raises(tinker.TinkerError, match=r"digest|damaged|differ|changed"):
        sampled(service.create_sampling_client(model_path=weights).result())
    assert loss(client) == before
    assert sampled(service.create_sampling_client(base_model=ALIAS).result())


def _flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.unlink()  # Other folders may hold the same file.
    file.write_bytes(content)


def test_the_first_error_is_shown(tmp_path: Path) -> None:
    """P62: what is wrong with the model, and not that a worker ended."""
    server = ServerProcess(tmp_path)
    (tmp_path / "model" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(RuntimeError, match="did not start") as failed:
        server.start()
    assert "model.safetensors" in str(failed.value)
    assert "Traceback" not in str(failed.value)


def test_servers_start_side_by_side(tmp_path: Path) -> None:
    """P62: each finds a port of its own."""
    servers = [ServerProcess(tmp_path / str(number)) for number in range(2)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        try:
            urls = {server.url for server in pool.map(ServerProcess.start, servers)}
        finally:
            for server in servers:
                server.kill()
    assert len(urls) == 2


def test_defaults_are_safe(tmp_path: Path) -> None:
    """P70: loopback unless said otherwise, and elsewhere only with keys."""
    environment = {**os.environ, "PLAIT_SERVER__DATA_FOLDER": str(tmp_path), "PLAIT_SERVER__PORT": "0"}
    command = [sys.executable, "-m", "plait.cli.main", "serve", "--json", "--host", "0.0.0.0"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert ended.returncode == 2
    assert "plait keys create" in ended.stderr


@pytest.mark.parametrize("name", ["../../up", "..", "a/b", "/etc/x", "a\\..\\b", ".hidden", "x" * 200, "", "nul\0"])
def test_names_do_not_leave_the_data_folder(server: Any, name: str) -> None:
    wire = Wire(server)
    model_id = wire.model()
    for seq_id, route in enumerate(("save_weights", "save_weights_for_sampler", "save_weights_external"), start=1):
        status, content = wire.post(route, model_id=model_id, seq_id=seq_id, path=name)
        assert status == 422, content
    assert wire.loss(model_id, 4) > 0
