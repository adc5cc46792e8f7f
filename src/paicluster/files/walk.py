"""Walk of a folder tree of any depth with one folder open at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from paicluster.files.errors import storage_failure
from paicluster.files.namespace import LOOKUP_FLAGS, NO_OWNERSHIP, Inode, Namespace

_Identity = tuple[int, int]


def walk(namespace: Namespace, top: Inode, visit: Callable[[Inode], Iterable[str]]) -> None:
    """Call ``visit`` for a folder and every folder below it, parents first.

    It returns the names of the children to visit, in reverse order; names that are not folders are skipped.
    """
    for _ in walk_steps(namespace, top, visit):
        pass


def walk_steps(namespace: Namespace, top: Inode, visit: Callable[[Inode], Iterable[str]]) -> Iterator[None]:
    """Like `walk`, one folder per iteration."""
    current, pending = top, list(visit(top))
    ancestors: list[tuple[_Identity, list[str]]] = []
    try:
        yield
        while pending or ancestors:
            if not pending:
                identity, pending = ancestors.pop()
                current, previous = _up(current, identity) if ancestors else top, current
                os.close(previous.fd)
                continue
            child = namespace.child(current, pending.pop())
            if child is None:
                continue
            if not child.is_folder:
                os.close(child.fd)
                continue
            ancestors.append((_identity(current.status), pending))
            if current is not top:
                os.close(current.fd)
            current = child
            pending = list(visit(child))
            yield
    finally:
        if current is not top:
            os.close(current.fd)


def _up(inode: Inode, identity: _Identity) -> Inode:
    """Parent of a folder. If the folder was moved meanwhile, ".." is not where the walk came from."""
    fd = os.open("..", LOOKUP_FLAGS, dir_fd=inode.fd)
    status = os.fstat(fd)
    if _identity(status) != identity:
        os.close(fd)
        raise storage_failure(f"{inode.path} was moved during the operation. Try again.")
    # Access was checked on the way down.
    return Inode(fd, status, NO_OWNERSHIP, inode.names[:-1])


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino
