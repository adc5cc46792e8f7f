"""Calls that are made later: what a checkpoint returns, and the calls of a batch.

Their pickles name this module, which every task can import.
"""

import pickle

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    import os
    from typing import Any, Callable, Iterator


class DelayedSubmission:
    """A function with the arguments to call it with."""

    # Those that an earlier version pickled have no values of their own.
    _done = False
    _result = None  # type: Any

    def __init__(self, function: "Callable[..., Any]", *args: "Any", **kwargs: "Any") -> "None":
        self.function = function
        self.args = args
        self.kwargs = kwargs

    def result(self) -> "Any":
        """What the function returns: it is called once."""
        if not self._done:
            self._result = self.function(*self.args, **self.kwargs)
            self._done = True
        return self._result

    def done(self) -> "bool":
        """Whether the function has returned."""
        return self._done

    def dump(self, filepath: "str | os.PathLike[str]") -> "None":
        """Write it to a file, from which `load` reads it."""
        try:
            import cloudpickle as pickler
        except ImportError:  # functions of modules can be pickled without it
            pickler = pickle
        with open(str(filepath), "wb") as file:
            pickler.dump(self, file)

    @classmethod
    def load(cls, filepath: "str | os.PathLike[str]") -> "DelayedSubmission":
        """Read what `dump` wrote. Loading a pickle runs code: only files of your own."""
        with open(str(filepath), "rb") as file:
            loaded = pickle.load(file)
        if not isinstance(loaded, cls):
            raise TypeError("%s has no %s: it is a %s." % (filepath, cls.__name__, type(loaded).__name__))
        return loaded

    def __repr__(self) -> "str":
        return "<DelayedSubmission of %r>" % (self.function,)


class Checkpointable:
    """Base class of callable objects that continue where they were: ``self`` is the state.

    The object is pickled when its task is preempted or out of time, and called again in the next attempt.
    Override ``checkpoint`` to call something else then.
    """

    def __new__(cls, *args: "Any", **kwargs: "Any") -> "Any":
        """A subclass without ``__init__`` takes arguments, too, as in submitit."""
        instance = super().__new__(cls)
        if not callable(instance):
            raise TypeError("%s needs a method __call__, because its objects are called." % cls.__name__)
        return instance

    def checkpoint(self, *args: "Any", **kwargs: "Any") -> "DelayedSubmission":
        return DelayedSubmission(self, *args, **kwargs)  # type: ignore[arg-type]


class FunctionSequence(Checkpointable):
    """Functions that are called one after the other, as one call that returns the list of their results.

    Interrupted, it goes on with the function that had not returned.
    """

    def __init__(self, verbose: "bool" = False) -> "None":
        self.verbose = verbose
        self.delayed_functions = []  # type: list[DelayedSubmission]

    def add(self, function: "Callable[..., Any]", *args: "Any", **kwargs: "Any") -> "None":
        self.delayed_functions.append(DelayedSubmission(function, *args, **kwargs))

    def __len__(self) -> "int":
        return len(self.delayed_functions)

    def __iter__(self) -> "Iterator[DelayedSubmission]":
        return iter(self.delayed_functions)

    def __call__(self) -> "list[Any]":
        if self.verbose:
            done = sum(function.done() for function in self)
            print("%d of %d functions have returned." % (done, len(self)), flush=True)
        return [function.result() for function in self]


def call(function: "Callable[..., Any]", *args: "Any", **kwargs: "Any") -> "Any":
    """Call a function: the calls of a batch may have different ones."""
    return function(*args, **kwargs)
