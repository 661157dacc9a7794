"""Revisions of the schema, applied by `plait.server.database.schema`."""
