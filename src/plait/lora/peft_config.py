"""adapter_config.json of PEFT <-> `LoraConfig`. Torch-free.

Every setting that changes what an adapter computes is either represented or refused; a setting this version does not know is
refused unless it is off.
"""

from collections.abc import Mapping
from typing import Any

from plait.types.errors import AdapterError
from plait.types.lora import LoraConfig

REPRESENTED = frozenset({"peft_type", "r", "lora_alpha", "target_modules", "init_lora_weights", "bias"})
HARMLESS = frozenset(
    {
        "task_type",
        "auto_mapping",
        "base_model_name_or_path",
        "revision",
        "inference_mode",
        "peft_version",
        "lora_dropout",
        "megatron_core",
        "qalora_group_size",
        "runtime_config",
        "ensure_weight_tying",
    }
)
"""They bear on training or loading elsewhere, or only on features that are refused themselves."""
PLAIN_STARTS = (True, False, "gaussian", "orthogonal", "eva", None)
"""Values of init_lora_weights that leave the base as it is; the others (pissa, olora, loftq...) go with a changed base."""
ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def peft_config(lora: LoraConfig, base_model: str = "") -> dict[str, Any]:
    """What PEFT reads, any version from 0.11 on."""
    alpha = int(lora.alpha) if float(lora.alpha).is_integer() else lora.alpha
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model or None,
        "r": lora.rank,
        "lora_alpha": alpha,
        "target_modules": list(lora.target_modules),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "rank_pattern": {},
        "alpha_pattern": {},
        "init_lora_weights": True,
        "modules_to_save": None,
        "inference_mode": True,
    }


def parse_peft_config(raw: Mapping[str, Any]) -> LoraConfig:
    """Raises `AdapterError` naming the setting that is missing or not served."""
    if raw.get("peft_type") != "LORA":
        raise AdapterError(f"peft_type is {raw.get('peft_type')!r}.", "Only LORA adapters are served.")
    if raw.get("bias", "none") != "none":
        raise AdapterError(f"bias is {raw['bias']!r}.", "Only adapters without trained biases are served.")
    start = raw.get("init_lora_weights", True)
    if start not in PLAIN_STARTS:
        raise AdapterError(f"init_lora_weights is {start!r}: it goes with a changed base.", "Convert it to a plain LoRA in PEFT.")
    for key, value in raw.items():
        if value and key not in REPRESENTED | HARMLESS:
            raise AdapterError(f"adapter_config.json sets {key} = {value!r}, which is not served.", "Use a plain LoRA adapter.")
    return LoraConfig(rank=int(_need(raw, "r")), alpha=float(_need(raw, "lora_alpha")), target_modules=_targets(raw))


def _need(raw: Mapping[str, Any], key: str) -> float:
    value = raw.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise AdapterError(f"adapter_config.json has {key} = {value!r}.", "It must state a positive number; none is assumed.")
    return value


def _targets(raw: Mapping[str, Any]) -> tuple[str, ...]:
    targets = _need_targets(raw)
    if targets == "all-linear":
        return ALL_LINEAR
    if isinstance(targets, str):
        raise AdapterError(f"target_modules is the pattern {targets!r}.", "List the modules by name.")
    order = {module: index for index, module in enumerate((*ALL_LINEAR, "lm_head"))}
    return tuple(sorted(map(str, targets), key=lambda module: (order.get(module, len(order)), module)))


def _need_targets(raw: Mapping[str, Any]) -> Any:
    targets = raw.get("target_modules")
    if not targets:
        raise AdapterError(f"adapter_config.json has target_modules = {targets!r}.", "List the modules by name.")
    return targets
