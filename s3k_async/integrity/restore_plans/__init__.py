"""Restored entries as a tree, for each layout."""
