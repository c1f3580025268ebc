"""What the service's pages show, a file for each subject; how they look is in `pages/`."""

from __future__ import annotations

from holdfast.service import Page
from holdfast.services.renewals.keeper import Renewals
from holdfast.services.renewals.views import dashboard, deliveries, judging, portfolio

__all__ = ["pages"]


def pages(renewals: Renewals) -> list[Page]:
    """All pages, those in the navigation first."""
    return [
        *portfolio.pages(renewals),
        *deliveries.pages(renewals),
        *judging.pages(renewals),
        *dashboard.pages(renewals),
    ]
