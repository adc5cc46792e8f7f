"""The options of `paicluster serve`, and the settings they make together with the cluster's file."""

from __future__ import annotations

import argparse

from paicluster.config import cluster_file as cluster_file
from paicluster.config.settings import Settings, virtual_clusters


def options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run the cluster in the foreground. Tasks go on when it stops, and are taken up\nagain."
    )
    parser.epilog = (
        "A home with a cluster.yaml in it (see `paicluster init`) is run as that file\n"
        "says; options win.\n"
        "The first start of a home makes the user 'admin'; its password comes from\n"
        "PAICLUSTER_ADMIN_PASSWORD, or is generated and shown once.\n\n"
        "examples:\n"
        "  paicluster serve --home ./cluster --host 127.0.0.1 --port 9186\n"
        "  paicluster serve --config /etc/paicluster.yaml"
    )
    add = parser.add_argument
    add("--home", metavar="DIR", help="where the cluster keeps everything")
    add("--config", metavar="FILE", help="the cluster's file (default: cluster.yaml of the home, if there)")
    add("--host", metavar="H", help="address to listen on (default: 127.0.0.1)")
    add("--port", type=int, metavar="P", help="port; 0 takes a free one (default: 9186)")
    add("--external-url", metavar="URL", help="what people and tasks type, if something stands in front")
    add(
        "--external-ca", metavar="FILE", help="certificates it is known by, if tasks do not trust them anyway"
    )
    add("--tls-cert", metavar="FILE", help="certificate chain, PEM")
    add("--tls-key", metavar="FILE", help="private key, PEM")
    add(
        "--allow-plain-http",
        action="store_true",
        default=None,
        help="serve other machines without TLS: passwords and tokens travel in the clear",
    )
    add(
        "--allow-shared-account",
        action="store_true",
        default=None,
        help="run everybody's jobs as the account of the server: they can read each other's files",
    )
    add("--cpus", type=int, metavar="N", help="cores to hand out (default: what the machine has)")
    add("--memory-mb", type=int, metavar="N", help="memory to hand out (default: what the machine has)")
    add("--gpus", type=int, metavar="N", help="GPUs to hand out (default: what the machine has)")
    add("--grace", type=float, metavar="S", help="seconds between asking a task to stop and killing it (10)")
    add(
        "--virtual-cluster",
        action="append",
        default=[],
        metavar="NAME=GPUS,CORES,MEMORY_MB",
        help="a share of the cluster; may be given several times, 'default' has the rest",
    )
    add(
        "--keep-days",
        type=float,
        metavar="D",
        help="how long to keep finished jobs (30; on an embedded cluster for ever)",
    )
    add("--keep-jobs", type=int, metavar="N", help="keep at most so many of them (100000)")
    add("--keep-mb", type=int, metavar="MB", help="keep at most so much of their files (no limit)")
    add(
        "--limits",
        choices=("off", "enforce"),
        help="hold tasks to the cores and memory they asked for (default: enforce)",
    )
    add("--clean-after", type=float, metavar="S", help=argparse.SUPPRESS)
    add("--embedded", action="store_true", help=argparse.SUPPRESS)
    add("--idle-exit", type=float, metavar="S", help=argparse.SUPPRESS)


# Options by the field that they set, where they are not called the same.
_FIELDS = {"grace": "grace_s", "clean_after": "clean_after_s", "idle_exit": "idle_exit_s"}
_SAME = (
    "host",
    "port",
    "external_ca",
    "tls_cert",
    "tls_key",
    "allow_plain_http",
    "allow_shared_account",
    "cpus",
    "memory_mb",
    "gpus",
    "keep_days",
    "keep_jobs",
    "keep_mb",
)


def settings(arguments: argparse.Namespace) -> Settings:
    """What is usual, under what the file says, under what the command line says; checked."""
    fields = cluster_file.of_options(arguments.home, arguments.config)
    for name, field in (*((name, name) for name in _SAME), *_FIELDS.items()):
        value = getattr(arguments, name)
        if value is not None:
            fields[field] = value
    if arguments.external_url is not None:
        fields["external_url"] = arguments.external_url.rstrip("/")
    if arguments.limits is not None:
        fields["enforce_limits"] = arguments.limits == "enforce"
    if arguments.virtual_cluster:
        fields["virtual_clusters"] = virtual_clusters(arguments.virtual_cluster)
    return cluster_file.settings_of(fields, arguments.embedded).check()
