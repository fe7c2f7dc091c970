"""Volumes as a whole: open, initialise, destroy, restore; ownership of their locations."""

from s3k_async.volumes.creation import init_volume
from s3k_async.volumes.destruction import destroy_volume
from s3k_async.volumes.volume import Volume, open_volume

__all__ = ["Volume", "destroy_volume", "init_volume", "open_volume"]
