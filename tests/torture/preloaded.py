"""For the server that clients are forked from: imported, it has read what each of them would read
to reach an engine.

That is botocore's descriptions of the services, which take longer to parse than a round takes.
"""

from __future__ import annotations

from s3k_async.backends.aws.session import _prepare
from s3k_async.config import AwsConfig

_prepare(AwsConfig(), None, "dynamodb")
_prepare(AwsConfig(), None, "s3")
