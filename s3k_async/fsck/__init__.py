"""Comparing the table, the operation log and the bytes of a volume, and mending what does not fit.

`verify_volume` and `repair_volume` of `s3k_async.fsck.repair` work on an open volume; `decide` of
`s3k_async.fsck.decide` on facts alone, wherever they were gathered.
"""
