"""The mapping of errors in a request, including those of libraries, to those of this package.

`library_errors` maps those of botocore, aiobotocore and aiohttp. It is imported when the first of
them occurs, since clients with static credentials do not need these libraries. `error_responses`
maps error responses.
"""

from __future__ import annotations

from s3k_async._core.error_handling import ErrorHandling
from s3k_async.backends.aws.error_responses import Codes, Decoder, no_answer
from s3k_async.errors import ResponseLostError, S3kError

__all__ = ["is_of_library", "map_exceptions"]

_LIBRARIES = ("aiobotocore", "aiohttp", "botocore")
_NOT_UNDERSTOOD = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Errors of the parsers of botocore, aiohttp and this package for malformed answers: undocumented,
and without information whether a write was applied."""


class map_exceptions(ErrorHandling):  # noqa: N801 - used as a function
    """Map errors of botocore, aiobotocore and aiohttp in a block to those of `errors.py`.

    `path` is the table, bucket or key of the call. `writing`: the call is a write, so a missing
    answer is a lost one. `codes` precedes the general table. `decode` decodes the items of a failed
    condition.
    """

    __slots__ = ("_codes", "_decode", "_path", "_writing")

    def __init__(
        self,
        path: str | None,
        *,
        writing: bool = False,
        codes: Codes | None = None,
        decode: Decoder = dict,
    ) -> None:
        self._path = path
        self._writing = writing
        self._codes = codes
        self._decode = decode

    def handle(self, error: BaseException) -> None:
        path = self._path
        if is_of_library(error):
            raise self._mapped(error) from error
        if isinstance(error, S3kError):
            if error.path is None and path is not None:
                error.name(path)
        elif isinstance(error, TimeoutError):
            raise no_answer(path, self._writing) from error
        elif isinstance(error, _NOT_UNDERSTOOD):
            raise _not_understood(path, error) from error

    def _mapped(self, error: BaseException) -> S3kError:
        from s3k_async.backends.aws.library_errors import translate

        try:
            mapped = translate(
                error,
                path=self._path,
                writing=self._writing,
                codes=self._codes,
                decode=self._decode,
            )
        except _NOT_UNDERSTOOD:
            mapped = None
        return _not_understood(self._path, error) if mapped is None else mapped


def is_of_library(error: BaseException) -> bool:
    """Whether an error class belongs to botocore, aiobotocore or aiohttp. Imports none of them."""
    return any(cls.__module__.partition(".")[0] in _LIBRARIES for cls in type(error).__mro__)


def _not_understood(path: str | None, error: BaseException) -> ResponseLostError:
    return ResponseLostError(f"the answer cannot be understood ({type(error).__name__})", path=path)
