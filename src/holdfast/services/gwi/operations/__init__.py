"""Acts on tenants and their work; each and its audit event are one commit."""

from __future__ import annotations

from holdfast.service import Context
from holdfast.services.gwi.operations.queue import WorkQueue
from holdfast.services.gwi.operations.signals import Signals


class Gwi:
    """The operations of the service and its reads, by what they are about.

    Example: `await gwi.queue.dismiss(by, "wi-1")`
    """

    def __init__(self, context: Context) -> None:
        store = context.store
        self.signals = Signals(store)
        self.queue = WorkQueue(store)
