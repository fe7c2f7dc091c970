"""Comparing the table, the operation log and the bytes of a volume, and repairing what does not
fit.

`verify_volume` and `repair_volume` of `s3k_async.integrity.repair` work on an open volume; `decide`
of `s3k_async.integrity.verify_rules` on facts alone, wherever they were gathered.
"""
