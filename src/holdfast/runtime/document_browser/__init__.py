"""Looking through what is kept: by the indexes that collections declare, inside one tenant, secrets masked.

    Documents(runtime).collection(caller, "acme", name) ──► Collection ──► Way ──► question ──► rows

Every way to look is a declared index (or ids in order, where a collection can be walked by them): the values
of its first fields are given, the rest is the order. What no index serves can't be asked.

`collection` knows one collection and its ways, `documents` who may look into which, `values` reads what
people type, `masking` keeps secrets back.
"""

from holdfast.runtime.document_browser.collection import (
    BrowsedDocument,
    BrowseFilter,
    BrowseIndex,
    Collection,
)
from holdfast.runtime.document_browser.documents import DocumentBrowser
from holdfast.runtime.document_browser.redaction import MASK, names_secret, redact_value

__all__ = [
    "MASK",
    "BrowseFilter",
    "BrowseIndex",
    "BrowsedDocument",
    "Collection",
    "DocumentBrowser",
    "names_secret",
    "redact_value",
]
