"""What the service's pages show, a file for each subject; how they look is in `pages/`."""

from __future__ import annotations

from holdfast.service import Page
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.views import calibration, dashboard, deliveries, portfolio

__all__ = ["pages"]


def pages(renewals: Renewals) -> list[Page]:
    """All pages, those in the navigation first."""
    return [
        *portfolio.pages(renewals),
        *deliveries.pages(renewals),
        *calibration.pages(renewals),
        *dashboard.pages(renewals),
    ]
