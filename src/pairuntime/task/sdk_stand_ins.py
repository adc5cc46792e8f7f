"""Stand-ins for classes and functions of the SDK in a task that does not have it.

Modules of the user that are imported in a task may name them in annotations, as base classes and as
decorators. A call of one says what is missing.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any, Callable, NoReturn


def _refuse(name: "str") -> "NoReturn":
    raise RuntimeError(
        "openpaisdk.functions.%s needs the SDK, which this task does not have: submit with "
        "pip=['openpaisdk'], or use an image that has it." % name
    )


def needs_sdk(name: "str") -> "Callable[..., Any]":
    """A function of the SDK that cannot be called here."""

    def function(*args: "Any", **kwargs: "Any") -> "NoReturn":
        _refuse(name)

    function.__name__ = function.__qualname__ = name.rpartition(".")[2]
    return function


class _StandInType(type):
    def __call__(cls, *args: "Any", **kwargs: "Any") -> "Any":
        _refuse(cls.__name__)

    def __getitem__(cls, item: "Any") -> "Any":
        """``Job[int]`` in an annotation."""
        return cls


def stand_in(name: "str") -> "Any":
    """A class of the SDK that can be named and derived from, and not created."""
    return _StandInType(name, (), {"__module__": "openpaisdk.functions", "__doc__": "Needs the SDK."})


def error_stand_in(name: "str", base: "type[BaseException]") -> "type[BaseException]":
    """An error of the SDK that a function may catch: it is never raised in a task."""
    return type(name, (base,), {"__module__": "openpaisdk.functions.task_errors"})


def remote(function: "Any" = None, **options: "Any") -> "Any":
    """The decorator ``remote``: the function stays what it is as ``local``, and a call needs the SDK."""
    if function is None:
        return lambda function: remote(function, **options)
    return RemoteFunction(function)


class RemoteFunction:
    """A decorated function in a task."""

    def __init__(self, function: "Callable[..., Any]") -> "None":
        self.local = function
        self.__name__ = getattr(function, "__name__", "function")
        self.__doc__ = function.__doc__

    def __call__(self, *args: "Any", **kwargs: "Any") -> "NoReturn":
        _refuse("remote")

    def map(self, *args: "Any", **kwargs: "Any") -> "NoReturn":
        _refuse("remote")

    def options(self, **changes: "Any") -> "RemoteFunction":
        return self
