"""Layout `tree`: entries are keyed by the id of their directory."""
