"""The strict base of all settings."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Unknown keys are errors, values are never coerced across types, and nothing changes after parsing."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True)
