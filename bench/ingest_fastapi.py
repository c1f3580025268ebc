"""A webhook receiver as many are written: FastAPI and SQLAlchemy's ORM, one commit a request.

As their documentation has it for speed: async all the way, raw body, one pool of connections, rows of the
same fields and indexes as ours, the same durability.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI, Request, Response
from sqlalchemy import JSON, DateTime, Index, LargeBinary, Text, event
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

KEPT = b'{"status":"kept"}'
CONNECTIONS = 20


class Table(DeclarativeBase):
    pass


class Item(Table):
    __tablename__ = "inbox"
    __table_args__ = (
        Index("by_status", "tenant_id", "status", "received_at"),
        Index("by_status_of_all", "status", "received_at"),
        Index("by_queue", "queue", "status", "turn"),
        Index("due", "due_at"),
        Index("due_by_lane", "lane", "due_at"),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    tenant_id: Mapped[str] = mapped_column(Text)
    source: Mapped[str] = mapped_column(Text)
    mark: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(Text)
    lane: Mapped[str] = mapped_column(Text)
    queue: Mapped[str] = mapped_column(Text)
    turn: Mapped[int]
    received_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    due_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    headers: Mapped[dict[str, str]] = mapped_column(JSON)
    body: Mapped[bytes] = mapped_column(LargeBinary)


async def fastapi(url: str, *, path: str, secret: str) -> Any:
    engine = _engine(url)
    async with engine.begin() as link:
        await link.run_sync(Table.metadata.create_all)
    sessions = async_sessionmaker(engine, expire_on_commit=False)
    app = FastAPI()
    key = secret.encode()

    @app.post(path)
    async def receive(request: Request) -> Response:
        body = await request.body()
        expected = "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected, request.headers.get("x-hub-signature-256", "")):
            return Response(b'{"error":"unverified"}', 401)
        mark, now = request.headers["x-github-delivery"], datetime.now(UTC)
        kept = {name: value for name, value in request.headers.items() if name.startswith("x-")}
        async with sessions() as session:
            session.add(Item(
                id=f"bench_{mark}", tenant_id="-", source="bench", mark=mark, status="pending",
                lane="bench:-", queue="", turn=0, received_at=now, due_at=now, headers=kept, body=body,
            ))  # fmt: skip
            try:
                await session.commit()
            except IntegrityError:
                return Response(b'{"status":"duplicate"}', 200)
        return Response(KEPT, 202, media_type="application/json")

    return app


def _engine(url: str) -> AsyncEngine:
    if url.startswith("postgres"):
        whole = url.replace("postgresql://", "postgresql+asyncpg://", 1)
        return create_async_engine(whole, pool_size=CONNECTIONS, max_overflow=0)
    path, _, words = url.removeprefix("sqlite:///").partition("?")
    whole = f"sqlite+aiosqlite:///{path}"
    engine = create_async_engine(whole, pool_size=CONNECTIONS, max_overflow=0, connect_args={"timeout": 60})

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(link: Any, record: Any) -> None:
        cursor = link.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute(f"PRAGMA synchronous = {words.partition('=')[2] or 'full'}")
        cursor.close()

    return engine
