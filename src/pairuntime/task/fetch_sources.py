"""Fetch a job's source archive and unpack it into the working folder.

``pairuntime sources URL`` is for clusters that do not do this themselves.
"""

import os
import sys
import tarfile
import urllib.request
import zlib

from pairuntime.transport.bounded_tar import BoundedTarFile

_TIMEOUT_S = 120.0


def main(argv: "list[str]") -> "int":
    try:
        count = unpack(argv[0], os.getcwd())
    except (OSError, ValueError, EOFError, RecursionError, zlib.error, tarfile.TarError) as e:
        sys.stderr.write(
            "The sources of the job could not be fetched from %s: %s\n" % (argv[0].split("?")[0], e)
        )
        return 1
    sys.stderr.write("Fetched %d source files of the job.\n" % count)
    return 0


def unpack(url: "str", folder: "str") -> "int":
    """Unpack the archive; returns the number of files. Nothing is written outside the folder."""
    root = os.path.realpath(folder) + os.sep
    count = 0
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response:
        with BoundedTarFile.open(fileobj=response, mode="r|*") as archive:
            for member in archive:
                target = os.path.realpath(os.path.join(folder, member.name))
                if not (target + os.sep).startswith(root) or member.isdev():
                    raise tarfile.ExtractError("%s is outside the working folder" % member.name)
                archive.extract(member, folder)
                count += not member.isdir()
    return count
