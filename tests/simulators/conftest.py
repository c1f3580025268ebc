from __future__ import annotations

from tests.providers.conftest import hasty, setting

__all__ = ["hasty", "setting"]
