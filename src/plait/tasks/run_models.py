"""What a run tells of its base models. Pure."""

from plait.config.run import RunSettings


def task_models(settings: RunSettings) -> dict[str, str]:
    """The base model's name by task, where there is more than one; else nothing."""
    names = {task.name: settings.model_of(task) for task in settings.tasks}
    return names if len(settings.used_models) > 1 else {}


def describe_models(settings: RunSettings) -> str:
    """The path of the one that there is, or the names of all."""
    used = settings.used_models
    return settings.of_model(used[0]).model.path if len(used) == 1 else ", ".join(used)


def describe_dtypes(settings: RunSettings) -> str:
    return ", ".join(dict.fromkeys(settings.of_model(name).model.dtype for name in settings.used_models))


def num_trainers(settings: RunSettings) -> int:
    """Training processes of all base models."""
    return sum(settings.of_model(name).workers.train_workers for name in settings.used_models)
