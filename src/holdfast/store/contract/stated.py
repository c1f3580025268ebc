"""What an engine states about itself is what it is."""

from __future__ import annotations

import asyncio
import sys
from typing import ClassVar

from holdfast.store.contract.home import Home
from holdfast.store.contract.models import Note
from holdfast.store.port import Capabilities
from holdfast.store.store import Store


class Stated:
    """Waking other processes and the writes of a commit are put to the proof with watching and commits."""

    capabilities: ClassVar[Capabilities]

    async def test_the_engine_is_what_its_test_says(self, store: Store) -> None:
        assert store.capabilities == self.capabilities

    async def test_what_a_killed_process_had_committed_is_kept_where_stated(
        self, home: Home, store: Store
    ) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast.store.contract.visitor", *home.address, "before-death", "killed",
        )  # fmt: skip
        assert await process.wait() < 0
        assert (await store.get(Note, "before-death") is not None) == self.capabilities.durable
