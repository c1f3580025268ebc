"""One byte budget for a request's head, chunk extensions and trailers; trailers never become headers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.http.processes import announce, holdfast_process
from tests.http.server_harness import SECRET, ServerHarness, serving

PIECE = 65_536
PIECES = 512


def _rss_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def _send(port: int, pieces: Iterable[bytes]) -> tuple[bytes, int]:
    """What the server answers, and how many pieces it took before it hung up."""
    answer, taken = b"", 0
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                client.sendall(piece)
                taken += 1
        with contextlib.suppress(ConnectionError):
            while part := client.recv(65_536):
                answer += part
    return answer, taken


def _port(harness: ServerHarness) -> int:
    return int(harness.address.rpartition(":")[2])


def _chunked(path: str, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: a", "transfer-encoding: chunked", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def test_a_token_in_a_trailer_does_not_authenticate(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        token, port = await harness.token("admin"), _port(harness)
        body = b'd\r\n{"seconds":0}\r\n0\r\n'
        head = _chunked("/work/drain", "content-type: application/json", "connection: close")
        trailer = f"authorization: Bearer {token}\r\n\r\n".encode()
        answer, _ = await asyncio.to_thread(_send, port, [head + body + trailer])
        assert answer.startswith(b"HTTP/1.1 401 ")
        in_head = _chunked(
            "/work/drain", "content-type: application/json", f"authorization: Bearer {token}",
            "connection: close",
        )  # fmt: skip
        answer, _ = await asyncio.to_thread(_send, port, [in_head + body + b"x-checksum: 7\r\n\r\n"])
        assert answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 422 "))


@pytest.mark.parametrize(
    "swollen",
    [
        [b"0\r\nx-long: ", *([b"y" * PIECE] * PIECES)],
        [b"0\r\n", *([b"".join(b"x-%d: %s\r\n" % (n, b"z" * 1_000) for n in range(60))] * PIECES)],
        [b"1;name=", *([b"e" * PIECE] * PIECES)],
        # Framing that is shorter than allowed for must not be saved up for a long trailer.
        [b"1\r\na\r\n" * 20_000, b"0\r\nx-long: ", *([b"y" * PIECE] * PIECES)],
    ],
    ids=["one trailer", "many trailers", "chunk extension", "after many chunks"],
)
async def test_swollen_trailers_and_extensions_are_dropped_in_flat_memory(
    tmp_path: Path, swollen: list[bytes]
) -> None:
    announce(tmp_path)
    async with holdfast_process(tmp_path, "serve", "--port", "0") as (process, address):
        port = int(address.rpartition(":")[2])
        before = _rss_bytes(process.pid)
        _, taken = await asyncio.to_thread(_send, port, [_chunked("/echo-chamber/webhook"), *swollen])
        assert taken < PIECES
        assert _rss_bytes(process.pid) - before < 16 * 2**20


async def test_a_body_in_tiny_chunks_with_a_few_trailers_is_taken(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        port = _port(harness)
        chunks = b"1\r\n \r\n" * 4_900
        end = b"0\r\nx-checksum: 7\r\n\r\n"
        head = _chunked("/echo-chamber/webhook", f"x-word: {SECRET}", "x-name: m1", "connection: close")
        answer, _ = await asyncio.to_thread(_send, port, [head, chunks, chunks, end])
        assert answer.startswith(b"HTTP/1.1 202 ")
