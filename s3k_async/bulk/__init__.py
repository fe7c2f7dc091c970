"""Verbs on many paths: write, adopt, rename, delete."""
