"""A client that can do what the SDK never does: bare requests in any order, the same one twice."""

import time
from typing import Any

import httpx
from tinker import types
from tinker.proto import tinker_public_pb2 as public
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker.types.forward_backward_request import ForwardBackwardRequest

from tests.server.e2e.data import supervised
from tests.server.server_process import ALIAS, ServerProcess


class Wire:
    """With a session of its own. Answers are (status, content)."""

    def __init__(self, server: ServerProcess, key: str = "", outlives_test: bool = False) -> None:
        self.http = server.http(key)
        self.session_id = self.must("create_session", tags=[], user_metadata={}, sdk_version="0.38.0", type="create_session")[
            "session_id"
        ]
        if not outlives_test:
            server.closers.append(self.close)
        self._num_models = self._num_samplers = 0

    def close(self) -> None:
        self.http.post(f"/sessions/{self.session_id}/finish", json={"reason": {"type": "success"}})
        self.http.close()

    def post(self, route: str, **body: Any) -> tuple[int, Any]:
        return _content(self.http.post(f"/{route}", json=body))

    def must(self, route: str, **body: Any) -> Any:
        status, content = self.post(route, **body)
        assert status == 200, (route, status, content)
        return content

    def result(self, request_id: str, timeout_s: float = 240.0) -> Any:
        """What a future came to: parsed JSON, or the bytes of a protobuf."""
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            status, content = self.post("retrieve_future", request_id=request_id)
            if status != 408:
                assert status == 200, (status, content)
                return content
        raise AssertionError(f"{request_id} did not end within {timeout_s} s")

    def model(self, **options: Any) -> str:
        """Its id, once it is there."""
        lora = {"rank": 4, "seed": 1, "train_unembed": True, "train_mlp": True, "train_attn": True}
        made = self.must(
            "create_model", session_id=self.session_id, model_seq_id=self._num_models, base_model=ALIAS, lora_config=lora, **options
        )  # fmt: skip
        self._num_models += 1
        return str(self.result(made["request_id"])["model_id"])

    def forward_backward(
        self,
        model_id: str,
        seq_id: int,
        *data: types.Datum,
        loss_fn: str = "cross_entropy",
        forward_only: bool = False,
        config: dict[str, Any] | None = None,
    ) -> tuple[int, Any]:
        content = types.ForwardBackwardInput(data=list(data or [supervised()]), loss_fn=loss_fn, loss_fn_config=config)  # type: ignore[arg-type]
        request = ForwardBackwardRequest(forward_backward_input=content, model_id=model_id, seq_id=seq_id)
        message = forward_backward_request_to_proto(request)
        message.forward_only = forward_only
        headers = {"content-type": "application/x-protobuf"}
        return _content(self.http.post("/forward_backward", content=message.SerializeToString(), headers=headers))

    def optim_step(self, model_id: str, seq_id: int, learning_rate: float = 1e-2, **more: Any) -> tuple[int, Any]:
        return self.post("optim_step", model_id=model_id, seq_id=seq_id, adam_params={"learning_rate": learning_rate}, **more)

    def loss(self, model_id: str, seq_id: int) -> float:
        """Of a forward pass."""
        status, content = self.forward_backward(model_id, seq_id, forward_only=True)
        assert status == 200, content
        return metrics(self.result(content["request_id"]))["loss:sum"]

    def sampler(self) -> str:
        """Of the base model."""
        made = self.must(
            "create_sampling_session", session_id=self.session_id, base_model=ALIAS,
            sampling_session_seq_id=1000 + self._num_samplers,
        )  # fmt: skip
        self._num_samplers += 1
        return str(made["sampling_session_id"])

    def sample(self, sampler_id: str, seq_id: int = 0, max_tokens: int = 4, **more: Any) -> tuple[int, Any]:
        params = {"max_tokens": max_tokens, "temperature": 1.0, "top_k": -1, "top_p": 1.0, "stop": []}
        prompt = {"chunks": [{"type": "encoded_text", "tokens": [5, 6, 7]}]}
        body = {"num_samples": 1, "prompt": prompt, "sampling_params": params} | more
        return self.post("asample", sampling_session_id=sampler_id, seq_id=seq_id, **body)


def metrics(output: bytes) -> dict[str, float]:
    return dict(public.ForwardBackwardOutput.FromString(output).metrics)


def _content(response: httpx.Response) -> tuple[int, Any]:
    is_json = "json" in response.headers.get("content-type", "")
    return response.status_code, response.json() if is_json else response.content
