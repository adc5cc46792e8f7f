"""Request of a job that calls a function: the only argument of its command, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

ROLE = "main"
_RUNTIME = '"${pai_runtime:-${PAI_RUNTIME_DIR:-/usr/local/pai}/pairuntime.pyz}"'
# Images of distributions have python3 only.
_COMMAND = f'exec "$(command -v python || echo python3)" -u {_RUNTIME} call'


def command_of(request: Mapping[str, object]) -> str:
    from shlex import quote

    text = json.dumps(request, separators=(",", ":"))
    return f"{_COMMAND} {quote(text)}"


def request_of(config: str) -> dict[str, Any] | None:
    """The request in the config of a job; None if it runs something else."""
    if "pairuntime.pyz" not in config:
        return None
    import yaml

    try:
        return request_in(yaml.safe_load(config))
    except yaml.YAMLError:
        return None


def request_in(job: Any) -> dict[str, Any] | None:
    """The request in a job as plain data; None if it runs something else."""
    from shlex import split

    try:
        line = job["taskRoles"][ROLE]["commands"][0]
        return dict(json.loads(split(line)[-1])) if line.startswith(_COMMAND) else None
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        return None
