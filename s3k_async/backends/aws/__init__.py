"""AWS protocols: sessions, clients, and the mapping of their errors to those of this package."""
