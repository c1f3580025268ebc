"""The Firestore API: one method per round trip; reads are retried while that may help."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import grpc
from google.api_core.exceptions import GoogleAPICallError, Unknown
from google.auth.exceptions import DefaultCredentialsError
from google.cloud.firestore_v1 import types
from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcAsyncIOTransport

from holdfast.backoff import BackOff
from holdfast.errors import ConfigError
from holdfast.store.firestore.address import FirestoreAddress
from holdfast.store.firestore.faults import is_transient, translate
from holdfast.store.firestore.wire import (
    BatchGetDocumentsRequest,
    BatchWriteRequest,
    CommitRequest,
    ListenRequest,
    RunAggregationQueryRequest,
    RunQueryRequest,
    Target,
)

T = TypeVar("T")
READ_ATTEMPTS: Final = 5
READ_BATCH_MAX: Final = 500
READ_TIME_S_MAX: Final = 300.0
_TIMEOUT_S: Final = 60.0
_UNLIMITED: Final = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))


class FirestoreClient:
    """One channel to one database."""

    def __init__(self, address: FirestoreAddress) -> None:
        self.address = address
        self._client = _connect(address)
        self._read_time: tuple[int, float] | None = None
        # The emulator applies its rules unless the caller claims to be the owner.
        metadata = (("authorization", "Bearer owner"),) if address.emulator else ()
        self._options: dict[str, Any] = {"retry": None, "timeout": _TIMEOUT_S, "metadata": metadata}
        self._listen_options = {
            "retry": None,
            "timeout": None,
            "metadata": (*metadata, ("google-cloud-resource-prefix", address.name)),
        }

    async def read(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the existing documents by full name."""
        found: dict[str, Any] = {}
        for start in range(0, len(names), READ_BATCH_MAX):
            part = names[start : start + READ_BATCH_MAX]
            found |= await _repeated(lambda part=part: self._read(part))  # type: ignore[misc]
        return found

    async def _read(self, names: Sequence[str]) -> dict[str, Any]:
        request = BatchGetDocumentsRequest(database=self.address.name, documents=names)
        stream = await self._client.batch_get_documents(
            request=types.BatchGetDocumentsRequest.wrap(request), **self._options
        )
        responses = [_plain(types.BatchGetDocumentsResponse, response) async for response in stream]
        for response in responses:
            self._read_time = response.read_time.ToMicroseconds(), time.monotonic()
        return {response.found.name: response.found for response in responses if response.HasField("found")}

    async def now_us(self) -> int:
        """The server's time, from the last read where one was made within minutes, else by a read."""
        if self._read_time is None or time.monotonic() - self._read_time[1] > READ_TIME_S_MAX:
            await self.read([f"{self.address.root}/_holdfast/clock"])
        assert self._read_time is not None
        read_us, at_s = self._read_time
        return read_us + int((time.monotonic() - at_s) * 1e6)

    async def query(self, parent: str, query: Any) -> list[Any]:
        """Return the documents that a structured query finds, in its order."""
        return await _repeated(lambda: self._query(parent, query))

    async def _query(self, parent: str, query: Any) -> list[Any]:
        request = RunQueryRequest(parent=parent, structured_query=query)
        stream = await self._client.run_query(request=types.RunQueryRequest.wrap(request), **self._options)
        responses = [_plain(types.RunQueryResponse, response) async for response in stream]
        return [response.document for response in responses if response.HasField("document")]

    async def aggregate(self, parent: str, query: Any) -> Any:
        """Return the value of an aggregation, which has the alias `it`."""
        return await _repeated(lambda: self._aggregate(parent, query))

    async def _aggregate(self, parent: str, query: Any) -> Any:
        request = RunAggregationQueryRequest(parent=parent, structured_aggregation_query=query)
        stream = await self._client.run_aggregation_query(
            request=types.RunAggregationQueryRequest.wrap(request), **self._options
        )
        responses = [_plain(types.RunAggregationQueryResponse, response) async for response in stream]
        return responses[0].result.aggregate_fields["it"]

    async def commit(self, writes: Iterable[Any]) -> list[Any]:
        """Make all writes or none; raises Google's own error, unretried: only the caller can judge it."""
        request = CommitRequest(database=self.address.name, writes=writes)
        response = await self._client.commit(request=types.CommitRequest.wrap(request), **self._options)
        return list(_plain(types.CommitResponse, response).write_results)

    async def write_each(self, writes: Iterable[Any]) -> list[tuple[int, str, Any]]:
        """Make each write by itself; return a status code, its text and a result for each."""
        request = BatchWriteRequest(database=self.address.name, writes=writes)
        response = await self._client.batch_write(
            request=types.BatchWriteRequest.wrap(request), **self._options
        )
        plain = _plain(types.BatchWriteResponse, response)
        pairs = zip(plain.status, plain.write_results, strict=True)
        return [(status.code, status.message, result) for status, result in pairs]

    async def listen(self, names: Sequence[str]) -> AsyncIterator[Any]:
        """Yield the changes of these documents, first their current state, until the stream breaks."""
        target = Target(documents=Target.DocumentsTarget(documents=names), target_id=1)
        request = types.ListenRequest.wrap(ListenRequest(database=self.address.name, add_target=target))

        async def requests() -> AsyncIterator[Any]:
            yield request
            await asyncio.Event().wait()  # closing our side would end the stream

        sent = requests()
        stream = await self._client.listen(requests=sent, **self._listen_options)
        try:
            async for response in stream:
                yield _plain(types.ListenResponse, response)
        finally:
            stream.cancel()

    async def close(self) -> None:
        await self._client.transport.close()


def _connect(address: FirestoreAddress) -> Any:
    try:
        if address.emulator is None:
            return FirestoreAsyncClient()
        channel = grpc.aio.insecure_channel(address.emulator, options=_UNLIMITED)
        return FirestoreAsyncClient(transport=FirestoreGrpcAsyncIOTransport(channel=channel))
    except DefaultCredentialsError as fault:
        raise ConfigError(f"no Google credentials: {fault}") from None


def _plain(kind: Any, response: Any) -> Any:
    """Return the response unwrapped; gRPC returns None for one that it could not parse."""
    if response is None:
        raise Unknown("a response could not be parsed")  # type: ignore[no-untyped-call]
    return kind.pb(response)


async def _repeated(call: Callable[[], Awaitable[T]]) -> T:
    for attempt in range(1, READ_ATTEMPTS + 1):
        try:
            return await call()
        except GoogleAPICallError as fault:
            if attempt == READ_ATTEMPTS or not is_transient(fault):
                raise translate(fault) from fault
        await back_off(attempt)
    raise AssertionError("unreachable")


async def back_off(attempt: int, *, longest_s: float = 0.4) -> None:
    """Wait with jitter, longer with every attempt."""
    await asyncio.sleep(BackOff(first_s=0.01, wait_s_max=longest_s, jitter=0.8).wait_s(attempt))
