"""Declares the service's operations: on its own audit trail, in its own area unless they name another."""

from __future__ import annotations

from functools import partial
from typing import Final

from holdfast.operation import operation
from holdfast.services.gwi.models.records import AUDIT

AREA: Final = "gwi"
gwi_operation: Final = partial(operation, area=AREA, audit=AUDIT)
