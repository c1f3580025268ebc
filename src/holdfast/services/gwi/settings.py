"""Settings: the table `[service.gwi]` of holdfast.toml."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.kit.inbox.source import BODY_BYTES_MAX
from holdfast.providers.github import GITHUB_URL
from holdfast.providers.language_model import FormatName


class GwiSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the service; without `app_id` and `app_key` nothing is read from or sent to GitHub.

    `app_key` is the App's private key, a PEM text. Without `webhook_secret` no event is received; the
    previous secret is accepted too while it is rotated. With `model_url` and `model_name` a language model
    writes code, reviews and resolves conflicts, within `run_tokens_max` tokens for each run.

    Example: `GwiSettings(app_id="12345", app_key=pem)`
    """

    app_id: str = ""
    app_key: str = ""
    github_url: str = GITHUB_URL
    webhook_secret: str = ""
    webhook_secret_previous: str = ""
    webhook_bytes_max: Annotated[int, Meta(ge=1_000, le=BODY_BYTES_MAX)] = BODY_BYTES_MAX
    model_url: Annotated[str, Meta(pattern=r"^(https?://[^\s/]\S*)?$")] = ""
    model_name: str = ""
    model_key: Annotated[str, Meta(pattern=r"^[!-~]*$")] = ""
    model_format: FormatName = "openai"
    model_s: Annotated[float, Meta(gt=0)] = 120.0
    run_tokens_max: Annotated[int, Meta(ge=1)] = 200_000
