"""Integrity: verify, repair, restore and garbage collection of a volume, by comparing the table,
the operation log and the data.

`verify_volume` and `repair_volume` of `s3k_async.integrity.repair` work on an open volume; `decide`
of `s3k_async.integrity.verify_rules` on facts alone, from any source.
"""
