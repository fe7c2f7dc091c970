"""The blocking client, its files and its transactions."""
