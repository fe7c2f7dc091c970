"""The operation log: entry formats, the protocol of writing, and reading it back."""
