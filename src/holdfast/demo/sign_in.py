"""Sign-in with the simulated identity provider: two people to choose from, and a stranger."""

from __future__ import annotations

from typing import Final

from holdfast.config import Issuer, IssuerGrant
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.kit.access.oidc_sign_in import CALLBACK
from holdfast.simulators.identity import IdentitySimulator, RegisterClient, RegisterPerson

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
