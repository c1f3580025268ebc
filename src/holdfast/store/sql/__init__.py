"""What the SQL engines share, without a driver: table mapping, index scan, claims, patches, migration.

One table per collection: `_key` (the ids of the path), `_version`, `_body` (the document's JSON), and a
column for each field that an index, a claim or the tenant needs. Claims change their columns only, so for
those fields the column wins over the body. `_patch`, where not null, is JSON of the fields changed since the
body was written, merged into it when the document is read. A list index has its own table, a row per item.
"""
