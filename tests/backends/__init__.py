"""The registry of backends, and what a backend of another distribution needs."""
