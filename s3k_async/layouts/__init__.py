"""Layouts: what the keys of entries are made of, and what depends on it. A package for each."""
