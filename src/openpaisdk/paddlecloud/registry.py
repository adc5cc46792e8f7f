"""``paddlecloud registry`` and ``paddlecloud delete registry``: logins of image registries."""

from __future__ import annotations

import sys

from openpaisdk.output import print_notice
from openpaisdk.output.untrusted_text import printable
from openpaisdk.paddlecloud.connection import open_datacenter
from openpaisdk.paddlecloud.flags import Flag, FlagCommand

ADD_REGISTRY = FlagCommand(
    "registry",
    "",
    "store the login of an image registry",
    "paddlecloud registry -name hub -username user1 -password secret -server hub.example.org",
    Flag("name", "a name for it, for submit -registry", "NAME"),
    Flag("username", "the user name at the registry", "NAME"),
    Flag("password", "the password at the registry; - asks for it, or reads it from standard input", "TEXT"),
    Flag("server", "the registry's address", "HOST"),
    count=(0, 1),
)
DELETE_REGISTRY = FlagCommand(
    "delete registry",
    "<name>",
    "delete the login of an image registry",
    "paddlecloud delete registry hub",
    count=(1, 1),
)


def add_registry(argv: list[str]) -> int:
    """``paddlecloud registry -name ... -username ... -password ... -server ...``"""
    args = ADD_REGISTRY.parse(argv)
    if args.positional not in ([], ["add"]):
        raise ADD_REGISTRY.error(f"unexpected argument {args.positional[0]!r}")
    missing = [name for name in ("name", "username", "password", "server") if not args.text(name)]
    if missing:
        raise ADD_REGISTRY.error(f"all four options are needed; missing are {', '.join(missing)}")
    password = args.text("password")
    if password == "-":
        password = _read_password()
    client = open_datacenter(args.text("datacenter"), print_notice)
    client.put_registry(args.text("name"), args.text("username"), password, args.text("server"))
    return 0


def _read_password() -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("Password at the registry: ")
    return sys.stdin.readline().rstrip("\n")


def delete_registry(argv: list[str]) -> int:
    """``paddlecloud delete registry <name>``"""
    args = DELETE_REGISTRY.parse(argv)
    name = args.positional[0]
    open_datacenter(args.text("datacenter"), print_notice).delete_registry(name)
    sys.stdout.write(f"registry: [{printable(name)}] is deleted\n")
    return 0
