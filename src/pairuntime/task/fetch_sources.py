"""Fetch the files that travel with a job and unpack them where the task works.

``pairuntime sources ADDRESS`` is for clusters that do not do this themselves.
"""

import os
import sys
import tarfile
import urllib.request

_TIMEOUT_S = 120.0


def main(argv: "list[str]") -> "int":
    try:
        count = unpack(argv[0], os.getcwd())
    except (OSError, tarfile.TarError) as e:
        sys.stderr.write(
            "The files of the job could not be fetched from %s: %s\n" % (argv[0].split("?")[0], e)
        )
        return 1
    sys.stderr.write("Fetched %d files of the job.\n" % count)
    return 0


def unpack(address: "str", folder: "str") -> "int":
    """How many files it were. Nothing is written outside the folder."""
    root = os.path.realpath(folder) + os.sep
    count = 0
    with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
        with tarfile.open(fileobj=answer, mode="r|*") as archive:
            for member in archive:
                where = os.path.realpath(os.path.join(folder, member.name))
                if not (where + os.sep).startswith(root) or member.isdev():
                    raise tarfile.ExtractError("%s would lie outside the working folder" % member.name)
                archive.extract(member, folder)
                count += not member.isdir()
    return count
