"""``pai open``: the cluster's web portal in a browser."""

from __future__ import annotations

import os
import sys

from openpaisdk.cli.parser import command_parser
from openpaisdk.connect import open_cluster
from openpaisdk.output import print_notice, show
from paiprotocol.errors import Forbidden


def open_portal(argv: list[str]) -> int:
    """``pai open [options] [job]``"""
    parser = command_parser(
        "open",
        "pai open\npai open train_k3v9xq\npai open --print",
        "The link that it opens signs you in once, within two minutes. Where there is no graphical browser,\n"
        "it is printed.",
    )
    parser.add_argument(
        "--print", action="store_true", dest="only_print", help="print the link; open nothing"
    )
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    parser.add_argument("job", nargs="?", default="", help="the job whose page to open (default: your jobs)")
    args = parser.parse(argv)
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    if args.job:
        cluster.job(args.job, args.user)  # a wrong name is an error here, not a page
    page = f"/jobs/{cluster.whole_name(args.job, args.user)}" if args.job else ""
    try:
        url = cluster.portal_link(page)
    except Forbidden as error:
        print_notice(error.message + " The portal asks for your password.")
        url = cluster.job_page(args.job, args.user) if args.job else f"{cluster.uri}/"
    is_open = not args.only_print and _open_browser(url)
    if is_open:
        print_notice(f"Opened {cluster.uri}/ in your browser.")
    show({"url": url}, args.output, lambda: "" if is_open else url)
    return 0


def _open_browser(url: str) -> bool:
    # On Linux a text browser in this terminal would be no help.
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    import webbrowser

    return webbrowser.open(url)
