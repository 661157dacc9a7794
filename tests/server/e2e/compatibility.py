"""Which methods of the SDK's clients work against this server, and `docs/tinker-compatibility.md` made of it.

`python -m tests.server.e2e.compatibility` writes the page.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import tinker
from tinker.lib.public_interfaces.rest_client import RestClient

PAGE = Path(__file__).parents[3] / "docs" / "tinker-compatibility.md"
VERSION = "0.38.0"
CLIENTS: tuple[type, ...] = (tinker.ServiceClient, tinker.TrainingClient, tinker.SamplingClient, RestClient)


class Entry(NamedTuple):
    status: Literal["works", "refused", "absent", "client"]
    note: str = ""


WORKS, CLIENT = Entry("works"), Entry("client", "Asks no server.")
OVERWRITTEN = Entry("works", "Weights and moments, also into a model that has been trained.")
RL_LOSSES = "Losses: cross_entropy, importance_sampling, ppo, cispo, dro, gspo, stable_reinforce."

TABLE: dict[type, dict[str, Entry]] = {
    tinker.ServiceClient: {
        "close": Entry("works", "Its models leave the device; their state stays."),
        "copy_weights": WORKS,
        "create_custom_loss": Entry("works", "The loss runs on the client (`custom_loss_server_side` is false)."),
        "create_lora_training_client": Entry("works", "Ranks up to `lora.max_rank`; AdamW only."),
        "create_rest_client": CLIENT,
        "create_sampling_client": Entry("works", "A base model, an alias, or a `tinker://` path."),
        "create_training_client_from_state": WORKS,
        "create_training_client_from_state_with_optimizer": WORKS,
        "get_console_url": Entry("client", "An address of Tinker's own console, which shows nothing of this server."),
        "get_server_capabilities": Entry("works", "An alias is served with a warning that names the model behind it."),
        "get_telemetry": CLIENT,
        "holder": CLIENT,
    },
    tinker.TrainingClient: {
        "create_sampling_client": WORKS,
        "forward": Entry("works", RL_LOSSES),
        "forward_backward": Entry("works", RL_LOSSES + " `stable_reinforce` is our own formula: the original is not public."),
        "forward_backward_custom": WORKS,
        "get_console_url": Entry("client", "An address of Tinker's own console, which shows nothing of this server."),
        "get_info": WORKS,
        "get_telemetry": CLIENT,
        "get_tokenizer": Entry("works", "Read from the model's folder, or by its alias from where Transformers finds it."),
        "load_state": OVERWRITTEN,
        "load_state_with_optimizer": OVERWRITTEN,
        "optim_step": Entry("works", "`AdamParams`; other optimizers are refused with 422."),
        "save_state": WORKS,
        "save_weights_and_get_sampling_client": Entry("works", 'Kind "inflight" is served as a snapshot.'),
        "save_weights_external": Entry("works", "PEFT format; `age_encryption_recipients` is refused."),
        "save_weights_for_sampler": WORKS,
    },
    tinker.SamplingClient: {
        "compute_logprobs": WORKS,
        "create": CLIENT,
        "from_sampler_handle": WORKS,
        "get_base_model": CLIENT,
        "get_sampler_handle": CLIENT,
        "get_telemetry": CLIENT,
        "get_tokenizer": WORKS,
        "on_queue_state_change": CLIENT,
        "sample": Entry("works", "Text prompts; images and audio are refused with 422."),
    },
    RestClient: {
        "assign_session_project": WORKS,
        "copy_weights": WORKS,
        "delete_checkpoint": WORKS,
        "delete_checkpoint_from_tinker_path": WORKS,
        "export_session_trace": Entry("refused", "Traces go to the operator's OpenTelemetry collector."),
        "get_audit_log": Entry("works", "With an admin's key."),
        "get_billing_usage": Entry("works", "Tokens; there are no prices."),
        "get_current_checkpoint_storage_usage": WORKS,
        "get_external_weights_urls": WORKS,
        "get_sampler": WORKS,
        "get_server_capabilities": WORKS,
        "get_session": WORKS,
        "get_telemetry": CLIENT,
        "get_training_run": WORKS,
        "get_training_run_by_tinker_path": WORKS,
        "get_weights_info_by_tinker_path": WORKS,
        "list_checkpoints": WORKS,
        "list_sessions": WORKS,
        "list_training_runs": WORKS,
        "list_user_checkpoints": WORKS,
        "publish_checkpoint_from_tinker_path": Entry("works", "For all tenants of this server."),
        "search_sessions": WORKS,
        "set_checkpoint_ttl_from_tinker_path": WORKS,
        "unpublish_checkpoint_from_tinker_path": WORKS,
        "whoami": Entry("refused", "The SDK reads it from a JWT; this server's keys are no JWTs."),
    },
}
"""An entry holds for the `_async` twin too."""

MEANINGS = {
    "works": "works",
    "refused": "refused, with an error that says why",
    "absent": "not there",
    "client": "works; runs in the client alone",
}


def public_methods(client: type) -> Iterator[str]:
    """Without `_async` twins."""
    names = [name for name, _ in inspect.getmembers(client) if not name.startswith("_")]
    yield from (name for name in names if name.removesuffix("_async") == name or name.removesuffix("_async") not in names)


def page() -> str:
    lines = [
        "# Compatibility with the Tinker SDK",
        "",
        f"Every public method of the clients in `tinker` {VERSION}, against `plait serve`. What holds for a method holds for its",
        "`_async` twin. This page is made by `python -m tests.server.e2e.compatibility`; a test fails when it is out of date, when",
        "the SDK has a method that it lacks, or when no end-to-end test calls a method that it says works.",
        "",
    ]
    for client in CLIENTS:
        lines += [f"## {client.__name__}", "", "| Method | Here | Notes |", "| --- | --- | --- |"]
        for name in public_methods(client):
            entry = TABLE[client].get(name, Entry("absent"))
            lines.append(f"| `{name}` | {MEANINGS[entry.status]} | {entry.note} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
