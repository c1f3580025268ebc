"""What the demo itself remembers."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import SERVICE_ONLY, Document, document


@document("holdfast_demo_scenes/{id}", access=SERVICE_ONLY)
class Seeded(Document, rename="camel"):
    """A scene whose first data is all there; `demo` is the whole: this store is a demo's."""

    id: str
    seeded_at: datetime
