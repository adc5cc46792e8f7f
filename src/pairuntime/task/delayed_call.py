"""Calls that are made later: what a checkpoint returns, and the calls of a batch.

Their pickles name this module, which every task can import.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any, Callable, Iterator


class DelayedSubmission:
    """A function with the arguments to call it with."""

    def __init__(self, function: "Callable[..., Any]", *args: "Any", **kwargs: "Any") -> "None":
        self.function = function
        self.args = args
        self.kwargs = kwargs

    def result(self) -> "Any":
        """Call it now."""
        return self.function(*self.args, **self.kwargs)

    def __repr__(self) -> "str":
        return "<DelayedSubmission of %r>" % (self.function,)


class Checkpointable:
    """Base class of callable objects that continue where they were: ``self`` is the state.

    The object is pickled when its task is preempted or out of time, and called again in the next attempt.
    Override ``checkpoint`` to call something else then.
    """

    def checkpoint(self, *args: "Any", **kwargs: "Any") -> "DelayedSubmission":
        return DelayedSubmission(self, *args, **kwargs)

    def __call__(self, *args: "Any", **kwargs: "Any") -> "Any":
        raise NotImplementedError


class FunctionSequence(Checkpointable):
    """Functions that are called one after the other, as one call that returns the list of their results.

    Interrupted, it goes on with the function that had not returned.
    """

    def __init__(self, verbose: "bool" = False) -> "None":
        self.verbose = verbose
        self.delayed_functions = []  # type: list[DelayedSubmission]
        self._results = []  # type: list[Any]

    def add(self, function: "Callable[..., Any]", *args: "Any", **kwargs: "Any") -> "None":
        self.delayed_functions.append(DelayedSubmission(function, *args, **kwargs))

    def __len__(self) -> "int":
        return len(self.delayed_functions)

    def __iter__(self) -> "Iterator[DelayedSubmission]":
        return iter(self.delayed_functions)

    def __call__(self) -> "list[Any]":
        done = len(self._results)
        if self.verbose:
            print("%d of %d functions have returned." % (done, len(self)), flush=True)
        for function in self.delayed_functions[done:]:
            self._results.append(function.result())
        return list(self._results)


def call(function: "Callable[..., Any]", *args: "Any", **kwargs: "Any") -> "Any":
    """Call a function: the calls of a batch may have different ones."""
    return function(*args, **kwargs)
