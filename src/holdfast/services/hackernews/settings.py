"""Settings: the table `[service.hackernews]` of holdfast.toml."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.providers.hackernews import API_URL, SITE_URL


class HackerNewsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without `enabled` nothing is fetched: the service shows the stories that are stored.

    Example: `HackerNewsSettings(enabled=True, worker_cron="*/30 * * * *")`
    """

    enabled: bool = False
    worker_cron: str = "*/30 * * * *"
    api_url: str = API_URL
    site_url: str = SITE_URL
    fetch_concurrency: Annotated[int, Meta(ge=1, le=100)] = 20
    call_s: Annotated[float, Meta(gt=0, le=300)] = 10.0
