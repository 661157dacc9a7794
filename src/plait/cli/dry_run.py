"""`plait run --dry-run`: what a run needs beside what the machine has."""

import asyncio
import os
import shutil
from pathlib import Path

import msgspec
import psutil

from plait.cli.output import human_bytes, print_json, print_warning
from plait.client.environments import check_environments
from plait.cluster.groups.group_estimate import group_shortages
from plait.config.advice import advise
from plait.config.explain import Need, RunEstimate, combine, estimate_run
from plait.config.run import RunSettings
from plait.observe.text import duration
from plait.tasks.run_models import describe_models, task_models
from plait.types.model import ModelConfig


def print_estimate(settings: RunSettings, as_json: bool) -> None:
    """Read the models' shapes (not their weights) and print what the run needs."""
    asyncio.run(check_environments(settings))
    parts = {name: settings.of_model(name) for name in settings.used_models}
    devices = {name: pick_device(part.model.device) for name, part in parts.items()}
    models = {name: read_model_config(part.model.path) for name, part in parts.items()}
    estimate = combine({name: estimate_run(part, models[name], devices[name]) for name, part in parts.items()})
    device = ", ".join(dict.fromkeys(devices.values()))
    if as_json:
        totals = {"memory_bytes": estimate.memory_bytes, "disk_bytes": estimate.disk_bytes, "device": device}
        print_json({**msgspec.to_builtins(estimate), **totals})
    else:
        print(describe_estimate(estimate, settings))
    advice = [f"{task.name}: {text}" for task in settings.tasks for text in advise(task)]
    for warning in [*find_shortages(estimate, settings, device), *group_shortages(settings, models), *advice]:
        print_warning(warning)


def read_model_config(path_or_name: str) -> ModelConfig:
    from plait.models.catalogue import find
    from plait.models.hf_config import read_config

    return read_config(find(path_or_name))


def pick_device(device: str) -> str:
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def describe_estimate(estimate: RunEstimate, settings: RunSettings) -> str:
    head = f"run {settings.name}: {len(settings.tasks)} tasks on {describe_models(settings)}"
    lines = [head, "", *_task_lines(estimate, settings), ""]
    lines += [*_need_lines("memory", estimate.memory, estimate.memory_bytes), ""]
    lines += [*_need_lines("disk", estimate.disk, estimate.disk_bytes), ""]
    time = (
        "not estimated for GPUs"
        if estimate.time_s is None
        else f"at most about {duration(estimate.time_s)}, if every answer is full length"
    )
    return "\n".join([*lines, f"time        {time}"])


def find_shortages(estimate: RunEstimate, settings: RunSettings, device: str) -> list[str]:
    """What this machine has too little of."""
    found = []
    free_memory, free_disk = psutil.virtual_memory().available, shutil.disk_usage(Path.cwd()).free
    if device == "cpu" and estimate.memory_bytes > free_memory:
        found.append(
            f"the run needs about {human_bytes(estimate.memory_bytes)} of memory and {human_bytes(free_memory)} are free: "
            "lower training.micro_batch_tokens, engine.slot_tokens or engine.pool_tokens, or set training.checkpoint_layers"
        )
    if estimate.disk_bytes > free_disk:
        found.append(f"the run needs about {human_bytes(estimate.disk_bytes)} of disk and {human_bytes(free_disk)} are free")
    return [*found, *_too_many_threads(settings, os.cpu_count() or 1)]


def _too_many_threads(settings: RunSettings, cores: int) -> list[str]:
    parts = [part for part in map(settings.of_model, settings.used_models) if part.workers.rolls_out_apart]
    split, shared = [part.workers for part in parts], settings.workers
    threads = sum(w.rollout_engines * w.rollout_threads for w in split)
    if shared.layout == "multiplexed_training":
        threads += shared.groups * shared.train_threads
    else:
        threads += sum(part.workers.train_workers * part.train_ranks * part.workers.train_threads for part in parts)
    if threads <= cores:
        return []
    engines = "rollout_engines x workers." if any(w.rollout_engines > 1 for w in split) else ""
    trainers = "train_workers x workers." if any(w.train_workers > 1 for w in split) else ""
    trainers += "train_ranks x workers." if any(part.train_ranks > 1 for part in parts) else ""
    trainers += "groups x workers." if shared.groups > 1 else ""
    models = " of all base models" if len(split) > 1 else ""
    return [
        f"workers.{engines}rollout_threads + workers.{trainers}train_threads{models} = {threads} on {cores} cores: "
        "contending threads run many times slower; lower them"
    ]


def _task_lines(estimate: RunEstimate, settings: RunSettings) -> list[str]:
    lines = []
    tasks, models = {task.name: task for task in settings.tasks}, task_models(settings)
    for sizes in estimate.tasks:
        task = tasks[sizes.task]
        warm = f"{task.warm_start.steps} warm-start + " if task.warm_start.steps else ""
        per_trajectory = sizes.sampled_tokens_per_step // sizes.trajectories_per_step
        lines += [
            f"{sizes.task}: {warm}{task.steps} steps" + (f" on {models[sizes.task]}" if models else ""),
            f"  {task.groups_per_step} groups x {task.group_size} answers = {sizes.trajectories_per_step} trajectories a step",
            f"  {sizes.trajectories_per_step} x {per_trajectory} = at most {sizes.sampled_tokens_per_step:,} sampled tokens a step",
            f"  all weights: {sizes.full_parameters:,} parameters"
            if task.training == "full"
            else f"  adapter of rank {task.lora.rank}: {sizes.adapter_parameters:,} parameters",
        ]
    return lines


def _need_lines(title: str, needs: tuple[Need, ...], total_bytes: int) -> list[str]:
    lines = [f"  {need.name:<14}{human_bytes(need.size_bytes):>8}   {need.derivation}" for need in needs]
    return [f"{title:<12}{human_bytes(total_bytes):>10}   about", *lines]
