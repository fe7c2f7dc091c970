"""Comparing the table, the operation log and the bytes of a volume."""
