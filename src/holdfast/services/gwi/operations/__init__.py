"""Acts on tenants and their work; each and its audit event are one commit."""

from __future__ import annotations

from holdfast.service import Context
from holdfast.services.gwi.operations.queue import WorkQueue
from holdfast.services.gwi.operations.runs import RunOperations
from holdfast.services.gwi.operations.signals import Signals
from holdfast.services.gwi.run_execution import RunExecution


class Gwi:
    """The operations of the service and its reads, by what they are about.

    Example: `await gwi.queue.dismiss(by, "wi-1")`
    """

    def __init__(self, context: Context, execution: RunExecution) -> None:
        store = context.store
        self.signals = Signals(store)
        self.queue = WorkQueue(store)
        self.runs = RunOperations(store, execution.starts, meters=context.meter, joins=execution.joins)
