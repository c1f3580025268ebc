"""The data of the service's pages, a file for each subject; the templates are in `pages/`."""

from __future__ import annotations

from holdfast.service import Page
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.views import calibration, dashboard, portfolio
from holdfast.services.renewals.views.portfolio import attention

__all__ = ["attention", "pages"]


def pages(renewals: Renewals) -> list[Page]:
    """All pages, those in the navigation first."""
    return [*portfolio.pages(renewals), *calibration.pages(renewals), *dashboard.pages(renewals)]
