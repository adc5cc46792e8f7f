"""``pai tag-job``: tags of a job."""

from __future__ import annotations

from openpaisdk.cli.parser import command_parser
from openpaisdk.connect import open_cluster
from openpaisdk.jobs.option_values import check_tag
from openpaisdk.output import print_notice, show


def tag_job(argv: list[str]) -> int:
    """``pai tag-job [options] job [tag ...]``"""
    parser = command_parser(
        "tag-job",
        "pai tag-job train_k3v9xq baseline\npai tag-job train_k3v9xq --remove baseline\n"
        "pai list-jobs --tag baseline",
        "Without a tag, prints the job's tags.",
    )
    parser.add_argument(
        "--remove", action="append", default=[], metavar="TAG", help="remove a tag; may be repeated"
    )
    parser.add_argument("--user", default="", metavar="USER", help="the job's owner (default: you)")
    parser.add_argument("job", help="the job's name")
    parser.add_argument("tags", nargs="*", metavar="tag", help="tags to add")
    args = parser.parse(argv)
    for tag in (*args.tags, *args.remove):
        check_tag(tag)
    cluster = open_cluster(args.cluster_alias, notify=print_notice)
    for tag in args.tags:
        cluster.tag(args.job, tag, args.user)
    for tag in args.remove:
        cluster.untag(args.job, tag, args.user)
    tags = cluster.job(args.job, args.user).tags
    show({"jobName": args.job, "tags": tags}, args.output, lambda: "\n".join(tags))
    if not tags and args.output == "table":
        print_notice(f"{args.job} has no tags.")
    return 0
