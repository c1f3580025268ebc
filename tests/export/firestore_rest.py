"""Firestore over REST as a person's browser reaches it: an unsigned token, judged by the rules."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET

ALLOWED, DENIED = True, False


def person(uid: str, project: str, **claims: object) -> str:
    """A token of the kind the emulator takes: unsigned, made out for the project."""
    issuer = f"https://securetoken.google.com/{project}"
    body = {"sub": uid, "user_id": uid, "aud": project, "iss": issuer, **claims}
    parts = ({"alg": "none", "typ": "JWT"}, body)
    encoded = [base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts]
    return ".".join([*encoded, ""])


class Firestore:
    """One connection to an emulator. Every verb says whether it was let in; anything else raises."""

    def __init__(self, address: str, project: str) -> None:
        self._link = http.client.HTTPConnection(address, timeout=60)
        self._root = f"/v1/projects/{project}/databases/(default)/documents"
        self._name = f"projects/{project}/databases/(default)/documents"

    def close(self) -> None:
        self._link.close()

    def get(self, path: str, token: str | None) -> bool:
        return self._ask("GET", f"{self._root}/{path}", token)

    def put(self, path: str, fields: Mapping[str, Any], *, token: str | None, exists: bool) -> bool:
        write = {
            "update": {"name": f"{self._name}/{path}", "fields": _fields(fields)},
            "currentDocument": {"exists": exists},
        }
        return self._ask("POST", f"{self._root}:commit", token, {"writes": [write]})

    def delete(self, path: str, token: str | None) -> bool:
        return self._ask("DELETE", f"{self._root}/{path}", token)

    def list(
        self, path: str, where: tuple[str, str] | None, *, token: str | None, everywhere: bool = False
    ) -> bool:
        """`path` is a collection; with `everywhere` its last name is asked over all parents."""
        parent, _, name = path.rpartition("/")
        query: dict[str, Any] = {"from": [{"collectionId": name, "allDescendants": everywhere}]}
        if where:
            query["where"] = {
                "fieldFilter": {
                    "field": {"fieldPath": where[0]}, "op": "EQUAL", "value": _value(where[1]),
                }
            }  # fmt: skip
        place = f"{self._root}/{parent}" if parent and not everywhere else self._root
        return self._ask("POST", f"{place}:runQuery", token, {"structuredQuery": query})

    def seed(self, path: str, fields: Mapping[str, Any]) -> None:
        """Write past the rules, there or not."""
        write = {"update": {"name": f"{self._name}/{path}", "fields": _fields(fields)}}
        assert self._ask("POST", f"{self._root}:commit", "owner", {"writes": [write]})

    def remove(self, path: str) -> None:
        assert self._ask("DELETE", f"{self._root}/{path}", "owner")

    def _ask(self, verb: str, url: str, token: str | None, body: object = None) -> bool:
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._link.request(verb, url, json.dumps(body) if body is not None else None, headers)
        answer = self._link.getresponse()
        text = answer.read().decode()
        if answer.status == 200:
            return ALLOWED
        if answer.status == 403 and "PERMISSION_DENIED" in text:
            return DENIED
        raise AssertionError(f"{verb} {url}: {answer.status} {text}")


def _fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in fields.items() if value is not UNSET}


def _value(value: Any) -> dict[str, Any]:
    if value is None:
        return {"nullValue": None}
    if isinstance(value, bool):
        return {"booleanValue": value}
    if isinstance(value, int):
        return {"integerValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, datetime):
        return {"timestampValue": value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    if isinstance(value, Mapping):
        return {"mapValue": {"fields": _fields(value)}}
    return {"stringValue": value}
