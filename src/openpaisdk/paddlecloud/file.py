"""``paddlecloud file``: whole files, without chunks."""

from __future__ import annotations

import os
import sys

from openpaisdk.output import print_notice
from openpaisdk.output.untrusted_text import printable
from openpaisdk.paddlecloud.connection import open_datacenter
from openpaisdk.paddlecloud.flags import FlagCommand
from openpaisdk.paddlecloud.pfs_path import base_name, check_pfs, datacenter_of
from paiprotocol.errors import PaiError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.paddlecloud.paddlecloud_client import PaddleCloudClient

PUT = FlagCommand(
    "file put",
    "<local path> <remote path>",
    "upload a file or folder in whole files",
    "paddlecloud file put ./train.py /pfs/datacenter1/home/user1/jobs\n"
    "paddlecloud file put ./job_word_emb/ /pfs/datacenter1/home/user1/job_word_emb",
    count=(2, 2),
    details="""\
A folder is uploaded under its own name; with / at its end, its content is. A file goes into the remote
folder, or becomes the remote file if that is one, or is new and has an extension (t.py); with / at the end
it is a folder. pfs cp continues interrupted copies, and sends only what differs.""",
)
GET_FILE = FlagCommand(
    "file get",
    "<remote path> <local path>",
    "download a file",
    "paddlecloud file get /pfs/datacenter1/home/user1/train.py ./",
    count=(2, 2),
    details="An existing file is never replaced.",
)
LIST_NAMES = FlagCommand(
    "file ls",
    "<remote folder>",
    "list the names in a folder",
    "paddlecloud file ls /pfs/datacenter1/home/user1",
    count=(1, 1),
)


def put(argv: list[str]) -> int:
    """``paddlecloud file put <local path> <remote path>``"""
    from openpaisdk.paddlecloud.local_tree import collect_file, collect_folder

    args = PUT.parse(argv)
    source, destination = args.positional
    target = check_pfs(destination)
    if not os.path.exists(source):
        raise UsageError(f"{source}: no such file or folder.", hint="Nothing was uploaded.")
    if os.path.isdir(source):
        files = collect_folder(source).files
        if not source.endswith("/"):
            target = f"{target}/{base_name(os.path.abspath(source))}"
    else:
        files = [collect_file(source)]
    client = open_datacenter(datacenter_of([target], args.text("datacenter")), print_notice)
    is_file_name = not os.path.isdir(source) and _is_file_name(client, destination, target)
    for file in files:
        path = target if is_file_name else f"{target}/{file.name}"
        client.put_file(path, file.path, file.name, file.size)
        sys.stdout.write(f"Uploading ... {printable(file.path)} {printable(path)}\n")
    return 0


def _is_file_name(client: PaddleCloudClient, destination: str, target: str) -> bool:
    """Whether a file is stored under the name that the destination ends with, and not in a folder there."""
    if destination.endswith("/"):
        return False
    from openpaisdk.paddlecloud.pfs_client import PfsClient

    there = PfsClient(client).stat(target)
    if there is not None:
        return not there.is_folder
    return bool(os.path.splitext(base_name(target))[1])


def get_file(argv: list[str]) -> int:
    """``paddlecloud file get <remote path> <local path>``"""
    from openpaisdk.paddlecloud.local_tree import check_parent

    args = GET_FILE.parse(argv)
    source, destination = args.positional
    path = check_pfs(source)
    if destination.endswith("/") or os.path.isdir(destination):
        destination = os.path.join(destination, base_name(path))
    check_parent(destination)
    if os.path.lexists(destination):
        raise PaiError(f"{destination} exists already.", hint="Choose another name, or delete it before.")
    client = open_datacenter(datacenter_of([path], args.text("datacenter")), print_notice)
    response = client.open_file(path)
    partial = f"{destination}.{os.getpid()}.new"
    try:
        with open(partial, "xb") as f:
            while data := response.read_some():
                f.write(data)
        os.replace(partial, destination)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise
    return 0


def list_names(argv: list[str]) -> int:
    """``paddlecloud file ls <remote folder>``"""
    args = LIST_NAMES.parse(argv)
    path = check_pfs(args.positional[0])
    client = open_datacenter(datacenter_of([path], args.text("datacenter")), print_notice)
    sys.stdout.write("".join(printable(name) + "\n" for name in client.file_names(path)))
    return 0
