"""`python -m s3k_async.cli`."""

from __future__ import annotations

import sys

from s3k_async.cli import main

if __name__ == "__main__":
    sys.exit(main())
