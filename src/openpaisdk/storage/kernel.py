"""Copying between two open files without the bytes coming by: the kernel does it, or shares the blocks."""

from __future__ import annotations

import errno
import os
import sys

_CANNOT = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM, errno.ETXTBSY)


if sys.platform == "linux":

    def copy_range(source: int, target: int, offset: int, length: int) -> int | None:
        """How much was copied, less when the source ends; None where the kernel cannot do it."""
        done = 0
        while done < length:
            try:
                count = os.copy_file_range(source, target, length - done, offset + done, offset + done)
            except OSError as e:
                if e.errno in _CANNOT and not done:
                    return None
                raise
            if not count:
                break
            done += count
        return done

else:

    def copy_range(source: int, target: int, offset: int, length: int) -> int | None:
        return None
