"""Work on many items in a few threads, each with something of its own, such as a connection."""

from __future__ import annotations

import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeVar

    Item = TypeVar("Item")
    Own = TypeVar("Own")


def share_work(items: Iterable[Item], owned: Sequence[Own], work: Callable[[Own, Item], None]) -> None:
    """Call ``work`` for each item, in one thread for each of ``owned``, such as a connection.

    The first of these is used in the caller's thread. The first error ends all threads, each after its item,
    and is raised; Ctrl-C does not wait for them.
    """
    remaining = iter(items)
    lock = threading.Lock()
    errors: list[BaseException] = []

    def run(own: Own) -> None:
        try:
            while True:
                with lock:
                    if errors:
                        return
                    try:
                        item = next(remaining)
                    except StopIteration:
                        return
                work(own, item)
        except Exception as e:  # raised again in the caller's thread
            errors.append(e)

    threads = [threading.Thread(target=run, args=(own,), daemon=True) for own in owned[1:]]
    for thread in threads:
        thread.start()
    try:
        run(owned[0])
        for thread in threads:
            thread.join()
    except KeyboardInterrupt as e:
        errors.append(e)
        raise
    if errors:
        raise errors[0]
