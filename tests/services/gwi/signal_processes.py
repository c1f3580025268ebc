"""Processes that process the same signals at once: `python -m tests.services.gwi.signal_processes URL COUNT`.

They are forked from one that has imported everything and opened nothing, and begin together.
"""

from __future__ import annotations

import importlib
import os
import sys

import uvloop

from holdfast.app import open_store
from holdfast.kit.audit import AUDIT_MODELS, Audit, AuditModels
from holdfast.model.access import SERVICE
from holdfast.operation import Operator
from holdfast.services.gwi.models import DOCUMENTS
from holdfast.services.gwi.operations.signals import Signals
from tests.services.gwi.harness import TENANT


async def process(url: str) -> None:
    """Process signals until none is pending; say how many were this process's own."""
    store = await open_store(url, DOCUMENTS)
    trails: dict[str, Audit] = {}

    def audits(tenant_id: str, *, models: AuditModels = AUDIT_MODELS) -> Audit:
        return trails.setdefault(tenant_id, Audit(store, tenant_id, models=models))

    by = Operator(tenant_id=TENANT, actor="system", caller=SERVICE, audits=audits)
    report = await Signals(store).process(by, limit=500)
    # One write: all speak into one pipe.
    os.write(1, f"{len(report.results)}\n".encode())
    await store.close()


def _forked(url: str, barrier: int) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.read(barrier, 1)
            uvloop.run(process(url))
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    return pid


def fork_all(url: str, count: int) -> int:
    """0 if all did well."""
    engine = url.partition(":")[0].replace("postgresql", "postgres")
    importlib.import_module(f"holdfast.store.{engine}")
    reads, writes = os.pipe()
    pids = [_forked(url, reads) for _ in range(count)]
    os.write(writes, b"." * count)
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(fork_all(sys.argv[1], int(sys.argv[2])))
