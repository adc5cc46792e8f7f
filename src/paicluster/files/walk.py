"""Going through a tree of folders, however deep it is, with one of them open at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from paicluster.files.errors import failed
from paicluster.files.namespace import LOOK, NOBODY, Inode, Namespace

_Identity = tuple[int, int]


def walk(tree: Namespace, top: Inode, look: Callable[[Inode], Iterable[str]]) -> None:
    """Call ``look`` with a folder and with every folder below it, parents first.

    It gives the names of those to go on with, the last first; what is no folder, or gone, is passed over.
    """
    for _ in steps(tree, top, look):
        pass


def steps(tree: Namespace, top: Inode, look: Callable[[Inode], Iterable[str]]) -> Iterator[None]:
    """The same, as somebody asks for it: one folder at a time."""
    here, left = top, list(look(top))
    above: list[tuple[_Identity, list[str]]] = []
    try:
        yield
        while left or above:
            if not left:
                identity, left = above.pop()
                here, before = _up(here, identity) if above else top, here
                os.close(before.fd)
                continue
            child = tree.child(here, left.pop())
            if child is None:
                continue
            if not child.folder:
                os.close(child.fd)
                continue
            above.append((_identity(here.status), left))
            if here is not top:
                os.close(here.fd)
            here = child
            left = list(look(child))
            yield
    finally:
        if here is not top:
            os.close(here.fd)


def _up(node: Inode, identity: _Identity) -> Inode:
    """The folder we came from. Had one been moved away meanwhile, the way up would lead elsewhere."""
    fd = os.open("..", LOOK, dir_fd=node.fd)
    status = os.fstat(fd)
    if _identity(status) != identity:
        os.close(fd)
        raise failed(f"{node.path} was moved while it was looked at: try again.")
    # Whose it is was asked on the way down.
    return Inode(fd, status, NOBODY, node.names[:-1])


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino
