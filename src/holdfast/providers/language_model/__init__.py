"""Language models behind an OpenAI-compatible API."""

from holdfast.providers.language_model.client import LanguageModel
from holdfast.providers.language_model.types import ModelCompletion, ModelMessage, ModelRefusal

__all__ = ["LanguageModel", "ModelCompletion", "ModelMessage", "ModelRefusal"]
