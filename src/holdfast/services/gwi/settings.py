"""Settings: the table `[services.gwi]` of holdfast.toml."""

from __future__ import annotations

import msgspec


class GwiSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the service.

    Example: `GwiSettings()`
    """
