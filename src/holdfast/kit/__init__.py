"""The reliability kit: parts over the store port, each usable alone, all able to share one commit."""

from __future__ import annotations

from typing import Final

NO_TENANT: Final = "-"
