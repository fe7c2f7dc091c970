"""Diagnosis of a volume and its dependencies: independent checks that do not change the volume."""
