"""Managed tasks of two tenants and an SDK client on the same workers, none of which changes what another one trains."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.server.e2e.data import ADAM, sampled, supervised, training_client
from tests.server.managed.managed_server import ManagedServer, trained
from tests.server.managed.task_files import task, task_file

QUESTIONS = [{"question": f"What is {n} + {n + 1}?", "answer": f"It is {2 * n + 1}. #### {2 * n + 1}"} for n in range(30)]


def test_two_tenants_and_an_sdk_client_train_what_each_would_alone(managed: ManagedServer, tmp_path: Path) -> None:
    ann, bob = managed.tenant(), managed.tenant()
    assert bob.upload("sums.jsonl", QUESTIONS).status_code == 201
    data = {"kind": "dataset", "path": "upload:sums.jsonl", "require_stop": False}
    words, sums = task_file(task("a"), task("b", lora={"rank": 8})), task_file(task("a", environment=data))
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        sdk = pool.submit(_train_with_the_sdk, managed, stop)
        try:
            runs = [(ann, ann.submit(words)), (bob, bob.submit(sums)), (ann, ann.submit(words))]
            assert [client.wait(run)["state"] for client, run in runs] == ["done"] * 3, managed.process.tail()
        finally:
            stop.set()
        assert len(set(sdk.result())) > 1

    file = tmp_path / "sums.jsonl"
    file.write_text("\n".join(map(json.dumps, QUESTIONS)))
    alone_words = managed.run_alone(tmp_path / "words", words)
    alone_sums = managed.run_alone(tmp_path / "sums", sums.replace("upload:sums.jsonl", str(file)))
    folders = [managed.run_folder(client, run) for client, run in runs]
    for together, alone, name in (
        (folders[0], alone_words, "a"),
        (folders[0], alone_words, "b"),
        (folders[1], alone_sums, "a"),
        (folders[2], alone_words, "a"),
    ):
        assert trained(together, name) == trained(alone, name)
        assert [step for step, *_ in trained(together, name)] == [1, 2, 3, 4, 5]
    assert any(grad_norm > 0 for _, _, _, grad_norm, tokens in trained(alone_words, "a") if tokens)


def _train_with_the_sdk(managed: ManagedServer, stop: threading.Event) -> list[float]:
    training = training_client(managed.process.client_for(managed.process.tenant().key))
    losses: list[float] = []
    try:
        while not stop.is_set() or len(losses) < 2:
            losses.append(training.forward_backward([supervised()], "cross_entropy").result().metrics["loss:sum"])
            training.optim_step(ADAM).result()
            sampled(training.save_weights_and_get_sampling_client().result(), num=2)
    finally:
        managed.process.close_clients()
    return losses
