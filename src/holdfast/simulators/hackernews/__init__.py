"""A simulated Hacker News: the public API (Firebase v0), and the site's sign-in form."""

from holdfast.clock import Clock
from holdfast.simulators.hackernews.control import (
    AddAccount,
    AddStories,
    Age,
    ChangeItem,
    Limits,
    Outage,
    PostItem,
)
from holdfast.simulators.hackernews.simulator import HackerNewsSimulator
from holdfast.simulators.server import InjectedFault

__all__ = [
    "AddAccount",
    "AddStories",
    "Age",
    "ChangeItem",
    "HackerNewsSimulator",
    "InjectedFault",
    "Limits",
    "Outage",
    "PostItem",
    "simulator",
]


def simulator(clock: Clock, port: int) -> HackerNewsSimulator:
    """One without stories; `stories` adds some."""
    return HackerNewsSimulator(clock=clock, port=port)
