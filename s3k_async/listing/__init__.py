"""Listings of the tree: pages, globs, Hive partitions, physical locations."""
