"""Open files: readers, writers and byte ranges of one version."""
