"""A simulated GitHub: repositories, an App with its installations, and a webhook."""

from holdfast.clock import Clock
from holdfast.simulators.github.control import (
    AddLabel,
    AddRepository,
    ChangeInstallation,
    CloseIssue,
    DisturbDeliveries,
    EditTitle,
    ExpireTokens,
    Install,
    OpenIssue,
    OpenPull,
    ProtectBranch,
    PushFiles,
    SetApiLimits,
    SetWebhook,
    ShowDeliveries,
    ShowRepository,
    WriteComment,
)
from holdfast.simulators.github.simulator import GithubSimulator
from holdfast.simulators.server import InjectedFault

__all__ = [
    "AddLabel",
    "AddRepository",
    "ChangeInstallation",
    "CloseIssue",
    "DisturbDeliveries",
    "EditTitle",
    "ExpireTokens",
    "GithubSimulator",
    "InjectedFault",
    "Install",
    "OpenIssue",
    "OpenPull",
    "ProtectBranch",
    "PushFiles",
    "SetApiLimits",
    "SetWebhook",
    "ShowDeliveries",
    "ShowRepository",
    "WriteComment",
    "simulator",
]


def simulator(clock: Clock, port: int) -> GithubSimulator:
    """One without accounts and repositories."""
    return GithubSimulator(clock=clock, port=port)
