"""Verbs `set-quota` and `quota`, which users and groups share."""

from __future__ import annotations

import argparse
import json
from typing import Any

from paicluster.cli.admin_api import AdminApi, path
from paicluster.cli.command_group import CommandGroup
from paicluster.cli.terminal import output_option, print_rows
from paiprotocol.errors import UsageError
from paiprotocol.transfer.sizes import format_size

# Options, the limits they set, and what they limit.
_COUNTS = {"tasks": "running tasks", "cpu": "cores", "gpu": "GPUs"}
_SIZES = {"mem": ("memoryMB", 1 << 20, "memory"), "storage": ("storageBytes", 1, "stored files")}
_REMOVED = "none"
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


def add_quota_commands(group: CommandGroup, kind: str) -> None:
    """``kind``: `user` or `group`."""
    whose = "a user" if kind == "user" else "the members of a group together"

    @group.command("set-quota", f"limit what {whose} may use at a time")
    def _set_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", metavar=kind.upper())
        for option, what in _COUNTS.items():
            parser.add_argument(
                f"--{option}", metavar="N", help=f"limit of {what}; '{_REMOVED}' removes the limit"
            )
        for option, (_, _, what) in _SIZES.items():
            parser.add_argument(
                f"--{option}",
                metavar="SIZE",
                help=f"limit of {what}, such as 500m, 20g or 1t; '{_REMOVED}' removes the limit",
            )
        parser.set_defaults(check=lambda arguments: _limits(arguments))

    @group.handler("set-quota")
    def _set(api: AdminApi, arguments: argparse.Namespace) -> None:
        place = path(f"{kind}s", arguments.name, "quota")
        api.request("PUT", place, _limits(arguments))
        _print(api.request("GET", place), "table")

    @group.command("quota", f"show the quota of {'a user' if kind == 'user' else 'a group'} and its use")
    def _show_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", metavar=kind.upper())
        output_option(parser)

    @group.handler("quota")
    def _show(api: AdminApi, arguments: argparse.Namespace) -> None:
        _print(api.request("GET", path(f"{kind}s", arguments.name, "quota")), arguments.output)


def _limits(arguments: argparse.Namespace) -> dict[str, int | None]:
    """Limits to set, by their name in the API."""
    limits: dict[str, int | None] = {}
    for option in _COUNTS:
        if (text := getattr(arguments, option)) is not None:
            limits[option] = None if text == _REMOVED else _count(option, text)
    for option, (key, unit, _) in _SIZES.items():
        if (text := getattr(arguments, option)) is not None:
            limits[key] = None if text == _REMOVED else _size(option, text) // unit
    if not limits:
        options = ", ".join(f"--{option}" for option in (*_COUNTS, *_SIZES))
        raise UsageError("There is no limit to set.", hint=f"Use some of {options}.")
    return limits


def _count(option: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise UsageError(f"--{option}: {text!r} is not a whole number: use 0 or more, or '{_REMOVED}'.")
    return int(text)


def _size(option: str, text: str) -> int:
    amount = text.strip().lower().removesuffix("b")
    unit = _UNITS.get(amount[-1:])
    if amount == "0":
        return 0
    try:
        size = int(float(amount[:-1]) * unit) if unit else -1
    except (ValueError, OverflowError):
        size = -1
    if not 0 <= size < 1 << 53:
        raise UsageError(f"--{option}: {text!r} is not a size: use a form like 500m or 20g, or '{_REMOVED}'.")
    return size


def _print(report: dict[str, Any], output: str) -> None:
    if output == "json":
        print(json.dumps(report, indent=2))
        return
    print_rows(
        [
            {"resource": name, "used": _shown(name, amounts["used"]), "limit": _shown(name, amounts["limit"])}
            for name, amounts in report["resources"].items()
        ],
        {"RESOURCE": "resource", "USED": "used", "LIMIT": "limit"},
        output,
    )


def _shown(resource: str, amount: int | None) -> str | int | None:
    return format_size(amount) if resource == "storageBytes" and amount is not None else amount
