"""A simulated identity provider: OpenID Connect with people to choose from."""

from holdfast.clock import Clock
from holdfast.simulators.identity.simulator import IdentitySimulator
from holdfast.simulators.identity.state import ChooseNext, RegisterClient, RegisterPerson, RotateKeys, SetSkew

__all__ = [
    "ChooseNext",
    "IdentitySimulator",
    "RegisterClient",
    "RegisterPerson",
    "RotateKeys",
    "SetSkew",
    "simulator",
]


def simulator(clock: Clock, port: int) -> IdentitySimulator:
    """One without people or clients until told otherwise."""
    return IdentitySimulator(clock=clock, port=port)
