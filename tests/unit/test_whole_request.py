"""A request that was read whole is parsed as the server does, or left to it."""

from __future__ import annotations

import pytest

from holdfast.http.whole_request import WholeRequestParser

HEAD = b"POST /a HTTP/1.1\r\nHost: a\r\nX-Name: \xe4\r\ncontent-length: 2\r\n"
WHOLE = HEAD + b"\r\nhi"
HEADERS = {"host": "a", "x-name": "\xe4", "content-length": "2"}


def test_an_ordinary_request_is_its_headers_and_body() -> None:
    parser = WholeRequestParser()
    assert parser.parse(WHOLE) == (HEADERS, b"hi")
    assert parser.parse(HEAD + b"Connection: Keep-Alive\r\n\r\n\nh") == (
        {**HEADERS, "connection": "Keep-Alive"},
        b"\nh",
    )


@pytest.mark.parametrize(
    "data",
    [
        WHOLE[:-1],
        WHOLE + b"P",
        WHOLE + WHOLE,
        HEAD,
        b"nonsense\r\n\r\n",
        b"POST /a HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nhost: a\r\n\r\n",
        HEAD + b"host: b\r\n\r\nhi",
        HEAD + b"HOST: b\r\n\r\nhi",
        HEAD + b"content-length: 2\r\n\r\nhi",
        HEAD + b"connection: close\r\n\r\nhi",
        HEAD + b"connection: keep-alive, x\r\n\r\nhi",
        HEAD + b"expect: 100-continue\r\n\r\nhi",
        HEAD + b"connection: upgrade\r\nupgrade: websocket\r\n\r\nhi",
        b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx-trailer: 1\r\n\r\n",
    ],
)
def test_anything_else_is_left_to_the_server_and_the_next_request_is_parsed(data: bytes) -> None:
    parser = WholeRequestParser()
    assert parser.parse(data) is None
    assert parser.parse(WHOLE) == (HEADERS, b"hi")


def test_headers_of_one_request_are_not_those_of_the_next() -> None:
    parser = WholeRequestParser()
    first = parser.parse(HEAD + b"x-more: 1\r\n\r\nhi")
    assert parser.parse(WHOLE) == (HEADERS, b"hi")
    assert first == ({**HEADERS, "x-more": "1"}, b"hi")
