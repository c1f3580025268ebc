"""Tokens are nowhere in the open: logs, errors, exports, console, audit trail, the database itself."""

from __future__ import annotations

from pathlib import Path

import structlog

from holdfast.kit.connections import Connection
from holdfast.model.access import SERVICE
from holdfast.server import compose, settings
from holdfast.simulators.google import InjectedFault, RevokeGrant
from holdfast.store import Query
from tests.console.console_harness import ConsoleHarness
from tests.services.c4lendar.harness import ALICE, ANA, BOB, Harness
from tests.serving import served

PAGES = (
    "/console/c4lendar", f"/console/c4lendar/chats/{ANA}", f"/console/connections?tenant={ANA}",
    f"/console/runs?tenant={ANA}", f"/console/inbox?tenant={ANA}", f"/console/audit?tenant={ANA}",
    f"/console/documents/google_connections?tenant={ANA}",
    f"/console/documents/holdfast_connections?tenant={ANA}",
)  # fmt: skip


async def _tokens(harness: Harness) -> list[str]:
    """The accounts' tokens in the open."""
    store, vault = harness.runtime.store.privileged(), harness.runtime.vault
    found = [one.doc async for one in store.scan(Query(Connection).order_by("-connected_at"))]
    return [
        vault.field(Connection, name).open(getattr(one, name), one.id).reveal()
        for one in found
        for name in ("access_token", "refresh_token")
        if getattr(one, name)
    ]


async def _console(harness: Harness) -> str:
    surface = compose(harness.runtime)
    surface.ready = True
    async with served(settings(surface)) as address:
        pages = ConsoleHarness(harness.runtime, surface, address)
        try:
            ann = await pages.signed_in("ann")
            return "".join([await ann.page(path) for path in PAGES])
        finally:
            for session in pages.sessions:
                await session.close()
            surface.changes.close()


async def test_no_token_is_anywhere_in_the_open(quick: Harness, tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        await quick.connect(ALICE)
        await quick.connect(BOB)
        secrets = [*await _tokens(quick), quick.telegram.token]
        quick.google.inject(InjectedFault(count=2, status=503, path="/events"))
        await quick.say("#cal lunch tomorrow noon")
        quick.telegram.state.chats[ANA].members[42] = "kicked"
        quick.google.run(RevokeGrant(email=ALICE))
        quick.clock.tick(4_000)
        await quick.say("#cal dinner tomorrow 8pm")
    assert len(secrets) == 5
    exported = await quick.operations.export_kv(quick.runtime.operator(SERVICE, "-"))
    shown = f"{logs}{exported}{quick.messages()}{await _console(quick)}"
    assert ALICE in shown
    assert 'data-label="Time zone">–' not in shown, (
        "a chat without a zone of its own has that of the settings"
    )
    assert [secret for secret in secrets if secret in shown] == []
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert ALICE.encode() in files
    assert [secret for secret in secrets[:4] if secret.encode() in files] == []
