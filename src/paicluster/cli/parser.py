"""Argument parser that raises usage errors as sentences and suggests near misses."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from paiprotocol.errors import UsageError


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if "--password" in message:
            # Not repeated: the message has the password, and the output may be a log.
            raise UsageError(
                f"{self.prog} takes no password on the command line: other users of this machine can see it.",
                hint="Leave it out: you are asked for it, or it is read from standard input. Choose another "
                "one, because your shell has stored this one.",
            )
        raise UsageError(f"{self.prog}: {message}.", hint=f"`{self.prog} --help` shows the usage.")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.metavar not in ("COMMAND", "VERB") or action.choices is None or value in action.choices:
            super()._check_value(action, value)
            return
        from difflib import get_close_matches

        known = list(action.choices)
        near = get_close_matches(str(value), known, 1)
        raise UsageError(
            f"There is no command `{self.prog} {value}`." + (f" Did you mean {near[0]}?" if near else ""),
            hint=f"Commands: {', '.join(known)}.",
        )
