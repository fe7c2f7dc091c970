"""A filesystem for data pipelines over object storage."""
