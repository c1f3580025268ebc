"""Documents of the demo."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import SERVICE_ONLY, Document, document


@document("holdfast_demo_scenes/{id}", access=SERVICE_ONLY)
class SeededScene(Document, rename="camel"):
    """A scene whose sample data is complete; the id `demo` marks the store as a demo's."""

    id: str
    seeded_at: datetime
