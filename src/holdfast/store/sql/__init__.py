"""What the two SQL engines share: tables, and the SQL that walks an index.

One table per collection: `_key` (the ids of the path), `_version`, `_body` (the document's JSON, the
truth), and a column for each field that an index, a claim or the tenant needs. Claims change their
columns only, so for those fields the column wins over the body. `_amended`, where it is not null, is JSON of
fields that changed since the body was written: it is laid over the body when the document is read. An
index on a list has a table of its own, one row per item.
"""
