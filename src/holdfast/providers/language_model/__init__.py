"""Language models behind an OpenAI-compatible API or Anthropic's."""

from holdfast.providers.language_model.client import LanguageModel
from holdfast.providers.language_model.formats import FormatName
from holdfast.providers.language_model.types import ModelTokens

__all__ = ["FormatName", "LanguageModel", "ModelTokens"]
