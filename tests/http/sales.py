"""A service with idempotent routes: sales that must be made once, and deliveries of several commits."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

import msgspec
from litestar import Response
from litestar.di import NamedDependency
from litestar.params import JSONBody

from holdfast.errors import ConflictError, LeaseLostError
from holdfast.idempotent_route import ATOMIC, REPEATABLE
from holdfast.model import Document, document
from holdfast.operation import Operator, operation
from holdfast.routing import By, RequestBody, action_route
from holdfast.service import Context, Parts, Service
from holdfast.store import Increment, Store, Transaction, upsert

# Named by the test: the handler tells there that it has acted, and never answers.
HANG_FILE: Final = "SALES_HANG_FILE"


FAULTS: Final = {"none": ConflictError("sold out"), "lost": LeaseLostError("another till has it")}


@document("stock/{id}", tenant="tenant_id")
class Stock(Document):
    id: str
    tenant_id: str
    sold: int = 0
    restocked: int = 0


class Order(RequestBody, frozen=True):
    item: str


class Receipt(msgspec.Struct, frozen=True):
    item: str
    sold: int


class Sales:
    def __init__(self, store: Store) -> None:
        self.store = store

    @operation("item.sold", area="sales", verb="sell", needs="developer", subject="item")
    async def sell(self, by: Operator, item: str) -> Receipt:
        async def act(tx: Transaction) -> int:
            found = await tx.get(Stock, item)
            sold = 1 + (found.doc.sold if found else 0)
            if item in FAULTS:
                raise FAULTS[item]
            tx.write(
                upsert(Stock(id=item, tenant_id=by.tenant_id, sold=sold), changes={"sold": Increment(1)})
            )
            return sold

        return Receipt(item, await by.commit(act))

    @operation("item.restocked", area="sales", verb="restock", needs="developer", subject="item")
    async def restock(self, by: Operator, item: str) -> Receipt:
        for _ in range(2):
            stock = Stock(id=item, tenant_id=by.tenant_id, restocked=1)

            async def act(tx: Transaction, stock: Stock = stock) -> None:
                tx.write(upsert(stock, changes={"restocked": Increment(1)}))

            await by.commit(act)
        return Receipt(item, 0)


Operations = NamedDependency[Any]


@action_route("/sales", Sales.sell, status=201, idempotent=ATOMIC)
async def sell(operations: Operations, by: By, data: JSONBody[Order]) -> Response[Receipt]:
    receipt = await operations.sell(by, data.item)
    if told := os.environ.get(HANG_FILE):
        await asyncio.to_thread(Path(told).touch)
        await asyncio.Event().wait()
    return Response(receipt, status_code=201, headers={"x-item": data.item})


@action_route("/restocks", Sales.restock, idempotent=REPEATABLE)
async def restock(operations: Operations, by: By, data: JSONBody[Order]) -> Receipt:
    receipt: Receipt = await operations.restock(by, data.item)
    return receipt


@action_route("/wrong-restocks", Sales.restock, idempotent=ATOMIC)
async def wrong_restock(operations: Operations, by: By, data: JSONBody[Order]) -> Receipt:
    receipt: Receipt = await operations.restock(by, data.item)
    return receipt


def _build(context: Context) -> Parts:
    return Parts(routes=[sell, restock, wrong_restock], operations=Sales(context.store))


SERVICE: Final = Service(name="sales", summary="Sells.", documents=[Stock], build=_build)
