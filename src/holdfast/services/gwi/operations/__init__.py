"""Acts on tenants and their work; each and its audit event are one commit."""

from __future__ import annotations

from holdfast.service import Context
from holdfast.services.gwi.operations.audit_trail import AuditTrail
from holdfast.services.gwi.operations.automation import Automation, InstanceStarts
from holdfast.services.gwi.operations.candidates import Candidates
from holdfast.services.gwi.operations.connectors import ConnectorOperations
from holdfast.services.gwi.operations.members import MemberOperations
from holdfast.services.gwi.operations.policies import PolicyOperations
from holdfast.services.gwi.operations.profiles import ProfileOperations
from holdfast.services.gwi.operations.queue import WorkQueue
from holdfast.services.gwi.operations.repos import RepoOperations
from holdfast.services.gwi.operations.runs import RunOperations
from holdfast.services.gwi.operations.signals import Signals
from holdfast.services.gwi.operations.tenants import TenantOperations
from holdfast.services.gwi.operations.usage import UsageOperations
from holdfast.services.gwi.patch_preparation import PatchPreparation
from holdfast.services.gwi.run_execution import RunExecution


class Gwi:
    """The operations of the service and its reads, by what they are about.

    Example: `await gwi.queue.dismiss(by, "wi-1")`
    """

    def __init__(self, context: Context, execution: RunExecution) -> None:
        store = context.store
        self.tenants = TenantOperations(store, context.roles)
        self.members = MemberOperations(store, context.roles)
        self.profiles = ProfileOperations(store)
        self.repos = RepoOperations(store)
        self.connectors = ConnectorOperations(store, context.vault)
        self.policies = PolicyOperations(store)
        self.signals = Signals(store)
        self.queue = WorkQueue(store)
        self.runs = RunOperations(store, execution.starts, meters=context.meter, joins=execution.joins)
        self.candidates = Candidates(store, execution.application, PatchPreparation(execution.hosts))
        self.usage = UsageOperations(store, context.meter)
        self.automation = Automation(store, InstanceStarts(store, execution.starts))
        self.audit = AuditTrail(store, context.audit)
