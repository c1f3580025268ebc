"""The data of the service's pages, a file for each subject; the templates are in `pages/`."""

from __future__ import annotations

from holdfast.service import Page
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.views import candidates, runs, tenants, work


def pages_of(gwi: Gwi) -> list[Page]:
    """All pages, those in the navigation first."""
    return [*work.pages(gwi), *candidates.pages(gwi), *runs.pages(gwi), *tenants.pages(gwi)]
