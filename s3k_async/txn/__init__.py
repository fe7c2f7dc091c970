"""Transactions on items: leases, records, write intents and their resolution, the logged
executor, the volume record and its lock."""
