"""Errors of programs that call functions as jobs, by the kinds of exceptions that scripts catch.

submitit raises Python's own exceptions: a script that catches them must catch these.
"""

from paiprotocol.errors import UsageError


class CallUsageError(UsageError, RuntimeError, TypeError):
    """A call that cannot be submitted, or a question that its job has no answer to."""


class UnknownParameter(CallUsageError, NameError):
    """A name that is no parameter of an executor."""


class WrongParameter(CallUsageError, ValueError, AssertionError):
    """A value that a parameter cannot have."""


class NotSubmitted(CallUsageError, AttributeError):
    """A call in a batch has no job before the batch ends."""
