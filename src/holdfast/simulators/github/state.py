"""The state of the simulated GitHub: accounts, repositories, the App, its installations and their tokens."""

from __future__ import annotations

import base64
import binascii
import functools
import itertools
import secrets
from collections import deque
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from holdfast.clock import Clock
from holdfast.simulators.github.deliveries import HookDeliveries
from holdfast.simulators.github.git_objects import Signature
from holdfast.simulators.github.refusals import ApiRefusal
from holdfast.simulators.github.repository import SimulatedAccount, SimulatedIssue, SimulatedRepository

APP_ID: Final = 4_242
APP_SLUG: Final = "git-with-intent"
JWT_S_MAX: Final = 600
SKEW_S: Final = 60
TOKEN_S: Final = 3_600
HOUR_S: Final = 3_600
PERMISSIONS: Final = {
    "checks": "write", "contents": "write", "issues": "write", "metadata": "read", "pull_requests": "write",
    "administration": "read",
}  # fmt: skip
EVENTS: Final = ("issues", "issue_comment", "pull_request", "pull_request_review", "push", "commit_comment")


class SimulatedInstallation(msgspec.Struct, kw_only=True):
    """The App in one account; `repositories` are None for all of them."""

    id: int
    account: SimulatedAccount
    sender: SimulatedAccount
    repositories: set[int] | None
    created_at: datetime
    suspended_at: datetime | None = None
    calls: deque[datetime] = msgspec.field(default_factory=deque)
    writes: deque[datetime] = msgspec.field(default_factory=deque)


class _AppClaims(msgspec.Struct):
    iss: str | int = ""
    iat: float = 0
    exp: float = 0


class GithubState:
    """Everything the simulator knows. `calls_per_h` and `writes_per_min` are limits of an installation."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.url = clock, ""
        self.hook = HookDeliveries(clock)
        self.clear()

    def clear(self) -> None:
        self.accounts: dict[str, SimulatedAccount] = {}
        self.repositories: dict[int, SimulatedRepository] = {}
        self.installations: dict[int, SimulatedInstallation] = {}
        self._tokens: dict[str, tuple[int, datetime]] = {}
        self.calls_per_h, self.writes_per_min = 5_000, 80
        self._ids = itertools.count(1_001)
        self.bot = SimulatedAccount(id=next(self._ids), login=f"{APP_SLUG}[bot]", type="Bot")
        self.hook.clear()

    @property
    def private_key(self) -> str:
        """The App's key, as it is downloaded."""
        pem = _app_key().private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        return pem.decode()

    def next_id(self) -> int:
        return next(self._ids)

    def account(self, login: str, kind: str = "User") -> SimulatedAccount:
        """The account of this name; it is made where there is none."""
        if login not in self.accounts:
            made = {"id": self.next_id(), "login": login, "type": kind}
            self.accounts[login] = msgspec.convert(made, SimulatedAccount)
        return self.accounts[login]

    def signature(self, account: SimulatedAccount) -> Signature:
        email = f"{account.id}+{account.login}@users.noreply.github.example"
        return Signature(name=account.login, email=email, date=self.clock.now().replace(microsecond=0))

    def repository(self, full_name: str) -> SimulatedRepository:
        found = next((one for one in self.repositories.values() if one.full_name == full_name), None)
        if found is None:
            raise ApiRefusal(404)
        return found

    def add_issue(self, repo: SimulatedRepository, user: SimulatedAccount, **fields: Any) -> SimulatedIssue:
        """Open an issue or pull request; they share their numbers."""
        number, now = repo.next_number, self.clock.now()
        repo.next_number += 1
        issue = SimulatedIssue(
            id=self.next_id(), number=number, user=user, created_at=now, updated_at=now, **fields
        )
        repo.issues[number] = issue
        return issue

    # -- who calls ------------------------------------------------------------------------------

    def check_app(self, token: str) -> None:
        """Refuse what is no valid JWT of the App."""
        try:
            signed, _, signature = token.rpartition(".")
            claims = msgspec.json.decode(_unpad(signed.partition(".")[2]), type=_AppClaims)
            _app_key().public_key().verify(_unpad(signature), signed.encode(), PKCS1v15(), hashes.SHA256())
        except (ValueError, InvalidSignature, binascii.Error, msgspec.DecodeError):
            raise ApiRefusal(401, "A JSON web token could not be decoded") from None
        now = self.clock.now().timestamp()
        if str(claims.iss) != str(APP_ID):
            raise ApiRefusal(401, "'Issuer' claim ('iss') must be an Integer or the App's client id")
        if claims.iat > now + SKEW_S:
            raise ApiRefusal(401, "'Issued at' claim ('iat') must be an Integer representing the time")
        if claims.exp <= now or claims.exp > now + JWT_S_MAX:
            raise ApiRefusal(401, "'Expiration time' claim ('exp') is too far in the future or in the past")

    def grant(self, installation_id: int) -> tuple[str, datetime]:
        """A new token of an installation, for an hour."""
        installation = self.installation(installation_id)
        if installation.suspended_at is not None:
            raise ApiRefusal(403, "This installation has been suspended")
        token = "ghs_" + secrets.token_hex(18)
        ends_at = (self.clock.now() + timedelta(seconds=TOKEN_S)).replace(microsecond=0)
        self._tokens[token] = (installation_id, ends_at)
        return token, ends_at

    def installation(self, installation_id: int) -> SimulatedInstallation:
        if installation_id not in self.installations:
            raise ApiRefusal(404)
        return self.installations[installation_id]

    def caller(self, token: str) -> SimulatedInstallation:
        """The installation that a token belongs to."""
        installation_id, ends_at = self._tokens.get(token, (0, self.clock.now()))
        if ends_at <= self.clock.now() or installation_id not in self.installations:
            raise ApiRefusal(401, "Bad credentials")
        found = self.installations[installation_id]
        if found.suspended_at is not None:
            raise ApiRefusal(403, "This installation has been suspended")
        return found

    def end_tokens(self) -> None:
        """Have every token end now."""
        self._tokens.clear()

    def count_call(self, caller: SimulatedInstallation, *, writes: bool) -> None:
        """Count a call, or refuse it by the primary or the secondary limit."""
        now = self.clock.now()
        _forget(caller.calls, now - timedelta(seconds=HOUR_S))
        _forget(caller.writes, now - timedelta(seconds=60))
        if len(caller.calls) >= self.calls_per_h:
            raise ApiRefusal(403, f"API rate limit exceeded for installation ID {caller.id}.")
        if writes and len(caller.writes) >= self.writes_per_min:
            text = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
            wait_s = 60 - int((now - caller.writes[0]).total_seconds())
            raise ApiRefusal(403, text, headers={"Retry-After": str(wait_s)})
        caller.calls.append(now)
        if writes:
            caller.writes.append(now)

    def limit_headers(self, caller: SimulatedInstallation) -> dict[str, str]:
        first = caller.calls[0] if caller.calls else self.clock.now()
        return {
            "X-RateLimit-Limit": str(self.calls_per_h),
            "X-RateLimit-Remaining": str(max(0, self.calls_per_h - len(caller.calls))),
            "X-RateLimit-Reset": str(int(first.timestamp()) + HOUR_S),
            "X-RateLimit-Used": str(len(caller.calls)), "X-RateLimit-Resource": "core",
        }  # fmt: skip

    def reaches(self, caller: SimulatedInstallation, repo: SimulatedRepository) -> bool:
        """Whether an installation may see a repository."""
        selected = caller.repositories is None or repo.id in caller.repositories
        return repo.owner == caller.account and selected

    def repositories_of(self, installation: SimulatedInstallation) -> list[SimulatedRepository]:
        return [one for one in self.repositories.values() if self.reaches(installation, one)]

    def installation_of(self, repo: SimulatedRepository) -> SimulatedInstallation | None:
        """The installation that hears of a repository."""
        return next((one for one in self.installations.values() if self.reaches(one, repo)), None)


@functools.cache
def _app_key() -> RSAPrivateKey:
    """The App's key: one for the process, because a key takes half a second to make."""
    return generate_private_key(public_exponent=65_537, key_size=2_048)


def _forget(times: deque[datetime], before: datetime) -> None:
    while times and times[0] <= before:
        times.popleft()


def _unpad(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
