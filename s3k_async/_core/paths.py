"""Logical paths.

A normalised path is absolute inside its volume: `/` is the root, one `/` stands between names, none
at the end. A name is any UTF-8 text of at most 1,024 bytes without `/` and NUL; names are compared
as given, without Unicode folding. Everything here accepts any spelling of a path and answers with
normalised ones. Nothing else in the package normalises.
"""

from __future__ import annotations

from s3k_async._native import ancestors, join, normalize, normalize_many, split

__all__ = ["ancestors", "join", "normalize", "normalize_many", "split"]
