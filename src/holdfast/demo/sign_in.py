"""Sign-in to a demo: by the printed address, as its owner; or with the simulated identity provider.

The owner's password is the code in that address. It stays in a private file for the next start, so that
sessions and bookmarks go on.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, Final

from litestar import Request, Response

from holdfast.config import Issuer, IssuerGrant
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.errors import UnverifiedError
from holdfast.kit import NO_TENANT
from holdfast.kit.access import COOKIE, Users
from holdfast.kit.access.oidc_sign_in import CALLBACK
from holdfast.kit.access.sessions import MAX_AGE_S
from holdfast.model.access import ANONYMOUS, SERVICE
from holdfast.operations import sessions, users
from holdfast.private_files import create_file
from holdfast.runtime import Runtime
from holdfast.simulators.identity import IdentitySimulator, RegisterClient, RegisterPerson
from holdfast.web import browser_cookie, is_secure

OWNER: Final = "demo"
CODE_FILE: Final = "demo-sign-in"
CODE_BYTES: Final = 24
CLIENT_ID: Final = "holdfast-demo"
PEOPLE: Final = {
    "admin@demo.example": "An administrator",
    "viewer@demo.example": "A viewer",
    "stranger@demo.example": "A stranger, who is not let in",
}


def simulated_issuer(world: SimulatorSet) -> Issuer:
    """Register the demo at the simulated provider; return the settings of that issuer."""
    provider = world.get(IdentitySimulator)
    for email, name in PEOPLE.items():
        provider.run(RegisterPerson(email=email, name=name))
    callback = f"{world.public_url.rstrip('/')}{CALLBACK}"
    provider.run(RegisterClient(client_id=CLIENT_ID, secret="demo", redirect_uris=(callback,)))
    return Issuer(
        issuer=provider.url, client_id=CLIENT_ID, client_secret="demo", name="the simulated provider",
        user_prefix="demo:",
        allow=(
            IssuerGrant(email="admin@demo.example", role="admin"),
            IssuerGrant(email="viewer@demo.example", role="viewer"),
        ),
    )  # fmt: skip


async def prepare_owner(runtime: Runtime) -> str:
    """Have an owner whose password is the code of this folder's demo; return the code."""
    by, code = runtime.operator(SERVICE, NO_TENANT, actor="demo"), _code(runtime.config.home / CODE_FILE)
    people = Users(runtime.store)
    if not await people.exists(OWNER):
        await users.add(runtime, by, OWNER, role="owner", address=runtime.config.public_url)
    if await people.verify(OWNER, code) is None:
        await users.set_password(runtime, by, OWNER, password=code)
    return code


def _code(path: Path) -> str:
    create_file(path)
    if not path.read_text():
        path.write_text(secrets.token_urlsafe(CODE_BYTES))
    return path.read_text()


async def enter(runtime: Runtime, request: Request[Any, Any, Any], *, code: str, page: str) -> Response[None]:
    """Begin a session of the owner and go on to the page; UnverifiedError for another code."""
    attempt = await sessions.throttle(runtime, OWNER, request.scope["state"]["address"])
    stranger = runtime.operator(ANONYMOUS, NO_TENANT)
    cookie = await sessions.sign_in(runtime, stranger, OWNER, password=code, attempt=attempt)
    if cookie is None:
        raise UnverifiedError("this is not the address that the demo printed; open that one")
    secure = is_secure(runtime.config.public_url)
    session = browser_cookie(COOKIE, cookie, max_age_s=MAX_AGE_S, secure=secure)
    return Response(None, status_code=303, headers={"location": page}, cookies=[session])
