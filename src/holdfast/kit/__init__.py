"""The reliability kit: parts over the store port, each usable alone, all able to share one commit.

    inbox   outbox   channels   schedules   runs            what moves
      │        │         │          │         │
      │        │         │          │    checkpoints
      ▼        ▼         ▼          ▼         ▼
    vault   leases   idempotency   audit   metering   access    what stands alone
      └────────┴─────────┴─────┬────┴─────────┴─────────┘
                               ▼
                 store.commit(*mine, *theirs)               one commit, or none

A part asks for a store handle (a tenant's or a privileged one) and takes its time from that handle's
clock. What it must write it gives as plain `Write`s (`writes_…`), for the caller's own commit; where it
must read first, it takes the caller's `Transaction`. Every document of the kit names its tenant;
used without tenants, it is kept under `NO_TENANT`.
"""

from __future__ import annotations

from holdfast.model.access import ALL_TENANTS, NO_TENANT

__all__ = ["ALL_TENANTS", "NO_TENANT"]
