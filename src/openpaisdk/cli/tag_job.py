"""``pai tag-job``: words that jobs are found again by."""

from __future__ import annotations

from openpaisdk.cli.parser import command_parser
from openpaisdk.connect import open_cluster
from openpaisdk.errors import UsageError
from openpaisdk.output import print_notice, show


def tag_job(argv: list[str]) -> int:
    """``pai tag-job [options] job [tag ...]``"""
    parser = command_parser(
        "tag-job",
        "pai tag-job train_k3v9xq baseline\npai tag-job train_k3v9xq --remove baseline\n"
        "pai list-jobs --tag baseline",
        "Without a tag, prints those it has.",
    )
    parser.add_argument("--remove", action="append", default=[], metavar="TAG", help="take a tag off")
    parser.add_argument("--user", default="", metavar="USER", help="whose job, if not yours")
    parser.add_argument("job", help="the job's name")
    parser.add_argument("tags", nargs="*", metavar="tag", help="tags to put on")
    args = parser.parse(argv)
    for tag in (*args.tags, *args.remove):
        if not tag.strip() or "," in tag:
            raise UsageError(f"{tag!r} cannot be a tag: it must say something, and hold no comma.")
    cluster = open_cluster(args.cluster_alias, tell=print_notice)
    for tag in args.tags:
        cluster.tag(args.job, tag, args.user)
    for tag in args.remove:
        cluster.untag(args.job, tag, args.user)
    now = cluster.job(args.job, args.user).tags
    show({"jobName": args.job, "tags": now}, args.output, lambda: "\n".join(now))
    if not now and args.output == "table":
        print_notice(f"{args.job} has no tags.")
    return 0
