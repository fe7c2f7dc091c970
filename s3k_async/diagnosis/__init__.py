"""Diagnosis of a volume and of what it depends on: independent checks that change nothing."""
