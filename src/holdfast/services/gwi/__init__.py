"""Git With Intent: from a GitHub event to an approved change, with a receipt for everything."""

from __future__ import annotations

from holdfast.error_format import ErrorFormat
from holdfast.service import Service
from holdfast.services.gwi.error_response import GwiErrorResponse
from holdfast.services.gwi.models import DOCUMENTS
from holdfast.services.gwi.models.tenants import ConnectorConfig
from holdfast.services.gwi.operations.profiles import GITHUB_PREFIX
from holdfast.services.gwi.parts import build
from holdfast.services.gwi.settings import GwiSettings

service = Service(
    name="gwi",
    summary="Turns GitHub events into approved changes, with a receipt for everything.",
    documents=DOCUMENTS,
    settings=GwiSettings,
    sealed={ConnectorConfig: ["secrets"]},
    errors=ErrorFormat(response=GwiErrorResponse),
    actor_prefixes=[GITHUB_PREFIX],
    build=build,
)
