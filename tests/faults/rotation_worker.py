"""A process that rotates and says how far it is: `python -m tests.faults.rotation_worker URL`."""

from __future__ import annotations

import os
import sys
from typing import Final

import uvloop

from holdfast.app import open_store
from holdfast.kit.vault import Rotation, Vault, rotate
from holdfast.model import Document, ProvidedId, document


@document("rotated_grants/{id}", id=ProvidedId())
class Grant(Document, rename="camel"):
    """A secret, and a number that others count up meanwhile."""

    id: str
    token: str
    used: int = 0


DOCUMENTS: Final[list[type[Document]]] = [Grant, Rotation]
FIELDS: Final = ["token"]


def tell(rotation: Rotation) -> None:
    print(rotation.walk, rotation.seen_in_walk, flush=True)


async def main(url: str) -> None:
    store = await open_store(url, DOCUMENTS)
    vault = Vault.from_settings(os.environ["HOLDFAST_KEYS"])
    await rotate(vault, Grant, fields=FIELDS, store=store, report=tell)
    await store.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
