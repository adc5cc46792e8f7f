"""Saved state of a function: written before its task is stopped, returned in the next attempt."""

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any, Callable

_state = None  # type: Any
_save = None  # type: Callable[[], Any] | None
on_registration = None  # type: Callable[[], None] | None


def saved_state(default: "Any" = None) -> "Any":
    """What the previous attempt saved before it was stopped; ``default`` in the first one."""
    return default if _state is None else _state


def save_before_stop(save: "Callable[[], Any]") -> "None":
    """Register a function that returns the state to save when the task must stop: its time is over, or
    another job needs its resources. The task is then retried, and ``saved_state()`` returns the state.

    Called in the main thread. Outside a function that runs as a job it has no effect.
    """
    global _save  # noqa: PLW0603
    _save = save
    if on_registration is not None:
        on_registration()


def can_save() -> "bool":
    return _save is not None


def save() -> "Any":
    return _save() if _save is not None else None


def restore(state: "Any") -> "None":
    global _state  # noqa: PLW0603
    _state = state


def forget_registration() -> "None":
    """Forget what a previous call in the same process registered."""
    global _save  # noqa: PLW0603
    _save = None
