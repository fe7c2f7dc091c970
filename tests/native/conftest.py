"""Generated tests have no deadline: a busy machine is no failure."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("s3k", deadline=None)
settings.load_profile("s3k")
