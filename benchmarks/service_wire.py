"""A light client of the service: the wire format and nothing else, so that what is measured is the server.

One tenant's session, over one pool of connections. An answer that the SDK would take for a failure is a WireFailure.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyqwest

from plait.server.wire import tinker_wire_pb2 as wire

OK, NOT_READY, BUSY = 200, 408, 429
JSON, PROTOBUF = "application/json", "application/x-protobuf"
LEARNING_RATE = 1e-4


class WireFailure(Exception):
    """The server did not do what it was asked for."""


@dataclass(slots=True)
class Model:
    model_id: str
    seq_id: int = 0

    def next_seq_id(self) -> int:
        self.seq_id += 1
        return self.seq_id


class WireClient:
    def __init__(self, url: str, key: str) -> None:
        self._client = pyqwest.Client()
        self._url = f"{url}/api/v1/"
        self._json = {"x-api-key": key, "content-type": JSON}
        self._protobuf = {"x-api-key": key, "content-type": PROTOBUF}
        self.session_id = ""
        self._num_models = self._num_samplers = 0
        self._num_samples: dict[str, int] = {}

    async def open(self) -> "WireClient":
        body = {"tags": [], "user_metadata": {}, "sdk_version": "0.38.0", "type": "create_session"}
        self.session_id = (await self.post("create_session", body))["session_id"]
        return self

    async def close(self) -> None:
        await self._send(f"sessions/{self.session_id}/finish", self._json, b'{"reason": {"type": "success"}}')

    async def post(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        status, content = await self._send(route, self._json, json.dumps(body).encode())
        return _checked(route, status, content)

    async def _send(self, route: str, headers: dict[str, str], content: bytes) -> tuple[int, bytes]:
        response = await self._client.post(self._url + route, headers, content)
        return response.status, bytes(response.content)

    async def retrieve(self, request_id: str) -> bytes:
        """The result, however long it takes; JSON or protobuf."""
        body = json.dumps({"request_id": request_id, "allow_metadata_only": False}).encode()
        while True:
            status, content = await self._send("retrieve_future", self._json, body)
            if status != NOT_READY:
                break
        if status != OK or content.startswith(b'{"error"'):
            raise WireFailure(f"{request_id}: {status} {content[:300]!r}")
        return content

    # ---- samples

    async def sampler(self, base_model: str) -> str:
        body = {"session_id": self.session_id, "sampling_session_seq_id": self._num_samplers, "base_model": base_model}
        self._num_samplers += 1
        return str((await self.post("create_sampling_session", body))["sampling_session_id"])

    async def submit_sample(self, sampler_id: str, prompt: Sequence[int], max_tokens: int) -> str:
        """The future of a sample of exactly `max_tokens` tokens."""
        seq_id = self._num_samples[sampler_id] = self._num_samples.get(sampler_id, -1) + 1
        body = {
            "sampling_session_id": sampler_id, "seq_id": seq_id, "num_samples": 1,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": list(prompt)}]},
            "sampling_params": {"max_tokens": max_tokens, "stop": [], "temperature": 1.0},
        }  # fmt: skip
        return str((await self.post("asample", body))["request_id"])

    async def sample(self, sampler_id: str, prompt: Sequence[int], max_tokens: int) -> wire.SampleResponse:
        content = await self.retrieve(await self.submit_sample(sampler_id, prompt, max_tokens))
        response = wire.SampleResponse.FromString(content)
        num_tokens = sum(len(sequence.tokens) // 4 for sequence in response.sequences)
        if num_tokens != max_tokens:
            raise WireFailure(f"{num_tokens} tokens were sampled, not {max_tokens}")
        return response

    # ---- training

    async def model(self, base_model: str, rank: int) -> Model:
        lora = {"rank": rank, "seed": 1, "train_unembed": True, "train_mlp": True, "train_attn": True}
        body = {
            "session_id": self.session_id, "model_seq_id": self._num_models, "base_model": base_model, "lora_config": lora,
            "type": "create_model",
        }  # fmt: skip
        self._num_models += 1
        return Model(json.loads(await self.retrieve((await self.post("create_model", body))["request_id"]))["model_id"])

    async def forward_backward(self, model: Model, data: bytes) -> wire.ForwardBackwardOutput:
        """`data` is of `datums`."""
        head = wire.ForwardBackwardRequest(model_id=model.model_id, seq_id=model.next_seq_id(), loss_fn="cross_entropy")
        status, content = await self._send("forward_backward", self._protobuf, head.SerializeToString() + data)
        request_id = _checked("forward_backward", status, content)["request_id"]
        return wire.ForwardBackwardOutput.FromString(await self.retrieve(request_id))

    async def optim_step(self, model: Model) -> None:
        body = {"model_id": model.model_id, "seq_id": model.next_seq_id(), "adam_params": {"learning_rate": LEARNING_RATE}}
        await self.retrieve((await self.post("optim_step", body))["request_id"])

    async def publish(self, model: Model) -> str:
        """A sampler with the model's present weights."""
        body = {
            "model_id": model.model_id, "seq_id": model.next_seq_id(), "sampling_session_seq_id": self._num_samplers,
            "kind": "snapshot",
        }  # fmt: skip
        self._num_samplers += 1
        result = json.loads(await self.retrieve((await self.post("save_weights_for_sampler", body))["request_id"]))
        return str(result["sampling_session_id"])


def datums(num_datums: int, num_tokens: int, vocab_size: int, seed: int = 0) -> bytes:
    """The `data` of a forward_backward request: random sequences to be imitated. (Messages that are put end to end are merged.)"""
    tokens = np.random.default_rng(seed).integers(3, vocab_size, (num_datums, num_tokens + 1)).astype("<i4")
    return wire.ForwardBackwardRequest(data=[_datum(row) for row in tokens]).SerializeToString()


def _datum(tokens: "np.ndarray[Any, np.dtype[np.int32]]") -> wire.Datum:
    num = len(tokens) - 1
    targets = wire.Tensor(dense=tokens[1:].astype("<i8").tobytes(), dtype=wire.DTYPE_INT64, shape=[num])
    weights = wire.Tensor(dense=np.ones(num, "<f4").tobytes(), dtype=wire.DTYPE_FLOAT32, shape=[num])
    chunk = wire.Chunk(encoded_text=wire.EncodedTextChunk(tokens=tokens[:-1].tobytes()))
    return wire.Datum(model_input=[chunk], loss_fn_inputs={"target_tokens": targets, "weights": weights})


def random_prompt(index: int, num_tokens: int, vocab_size: int) -> list[int]:
    """No two are alike."""
    return [int(token) for token in np.random.default_rng(index).integers(3, vocab_size, num_tokens)]


def _checked(route: str, status: int, content: bytes) -> dict[str, Any]:
    if status != OK:
        raise WireFailure(f"{route}: {status} {content[:300]!r}")
    answer: dict[str, Any] = json.loads(content)
    return answer
