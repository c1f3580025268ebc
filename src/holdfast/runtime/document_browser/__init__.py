"""Browsing of documents: by the declared indexes, inside one tenant, secrets redacted.

    DocumentBrowser(runtime).collection(caller, "acme", name) ─► Collection ─► BrowseIndex ─► query ─► rows

Documents can only be browsed by a declared index (or by ids in order, where a collection can be scanned so):
values for its first fields, the rest is the order. What no index serves can't be queried.

`collection` has one collection and its indexes, `documents` who may browse which, `values` parses what people
type, `redaction` hides secrets.
"""

from holdfast.runtime.document_browser.collection import BrowseIndex, Collection
from holdfast.runtime.document_browser.documents import DocumentBrowser
from holdfast.runtime.document_browser.redaction import MASK, redact_value

__all__ = ["MASK", "BrowseIndex", "Collection", "DocumentBrowser", "redact_value"]
