"""From settings to environment. Each kind's libraries load only when one of that kind is made."""

from plait.config.environments import (
    AnyEnvironmentSettings,
    CalculatorSettings,
    DatasetSettings,
    FunctionSettings,
    ReasoningGymSettings,
)
from plait.environments.protocol import Environment


def make_environment(settings: AnyEnvironmentSettings) -> Environment:
    """Raise ConfigError for settings that cannot work: unknown names, missing files, unreadable gold answers."""
    match settings:
        case ReasoningGymSettings():
            from plait.environments.reasoning_gym import ReasoningGymEnvironment

            return ReasoningGymEnvironment(settings)
        case DatasetSettings():
            from plait.environments.dataset import DatasetEnvironment

            return DatasetEnvironment(settings)
        case FunctionSettings():
            from plait.environments.function import FunctionEnvironment

            return FunctionEnvironment(settings)
        case CalculatorSettings():
            from plait.environments.calculator import CalculatorEnvironment

            return CalculatorEnvironment(settings)
