"""`paicluster init` and `paicluster check-config`: the file that describes a cluster."""

from __future__ import annotations

import argparse
import json
import os
import pwd
import sys
from pathlib import Path

from paicluster.config import cluster_file, template
from paicluster.engines.engine_kind import DetectedConfig
from paicluster.engines.process.kind import PROCESS_SECTION
from paicluster.engines.registry import ENGINE_KINDS
from paiprotocol.errors import ConfigError, UsageError

DEFAULT_HOME = "paicluster"


def init_options(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write the commented file that describes a new cluster."
    parser.epilog = "example:\n  paicluster init --home ./cluster\n  paicluster serve --home ./cluster"
    parser.add_argument(
        "--home", default=DEFAULT_HOME, metavar="DIR", help=f"the new cluster's home (./{DEFAULT_HOME})"
    )
    for kind in ENGINE_KINDS.values():
        if kind.init_help:
            parser.add_argument(
                f"--{kind.name}", dest="kind", action="store_const", const=kind.name, help=kind.init_help
            )
    parser.add_argument("--force", action="store_true", help="replace an existing file")


def init(arguments: argparse.Namespace) -> int:
    home = Path(arguments.home).expanduser().absolute()
    file = home / cluster_file.NAME
    config = _detect_config(arguments.kind)
    text = template.cluster_file(file, config.engine, config.virtual_clusters)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if arguments.force else os.O_EXCL)
        with os.fdopen(os.open(file, flags, 0o600), "w") as out:
            out.write(text)
    except FileExistsError:
        raise ConfigError(f"The file {file} already exists.", hint="Replace it with --force.") from None
    except OSError as error:
        raise ConfigError(f"The file {file} cannot be written: {error.strerror}.") from error
    if config.message:
        print(config.message)
    print(f"Wrote {file}.\nNext: review it, then run: paicluster serve --home {arguments.home}")
    return 0


def _detect_config(kind: str | None) -> DetectedConfig:
    """Config for the engine that the caller chose, else for the first one that this machine can run."""
    choices = (
        [ENGINE_KINDS[kind]]
        if kind
        else [engine_kind for engine_kind in ENGINE_KINDS.values() if not engine_kind.init_help]
    )
    for choice in choices:
        if choice.detect is not None and (detected := choice.detect()) is not None:
            return detected
    return DetectedConfig(PROCESS_SECTION)


def check_options(parser: argparse.ArgumentParser) -> None:
    parser.description = "Report all errors in a cluster's file, by line and column."
    parser.epilog = "example:\n  paicluster check-config ./cluster/cluster.yaml"
    parser.add_argument("file", metavar="FILE", nargs="?", help="the file, or the home it is in")
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="output format (default: text)"
    )


def check(arguments: argparse.Namespace) -> int:
    if arguments.file is None:
        raise UsageError(
            "The file to check, or its home, is missing.",
            hint="example: paicluster check-config ./cluster/cluster.yaml",
        )
    file = Path(arguments.file).expanduser()
    file = file / cluster_file.NAME if file.is_dir() else file
    as_json = arguments.output == "json"
    try:
        fields = cluster_file.load(file)
        settings = cluster_file.settings_of(fields).check()
    except cluster_file.ClusterFileError as error:
        if not as_json:
            raise
        print(json.dumps([problem.as_dict() for problem in error.problems], indent=2))
        return error.exit_status
    print("[]" if as_json else f"{file} is valid.")
    sys.stdout.flush()
    # A note, not an error: the file may be for another machine.
    for user, account in settings.accounts.items():
        if not account[0].isdigit() and not _has_account(account):
            print(f"Note: there is no account {account} on this machine, for user {user}.", file=sys.stderr)
    for engine in settings.engines:
        kind = ENGINE_KINDS[engine.kind]
        if kind.check_options is not None:
            for problem in kind.check_options(engine.options, settings.home, engine.name):
                print(f"Note: {problem}", file=sys.stderr)
    return 0


def _has_account(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
