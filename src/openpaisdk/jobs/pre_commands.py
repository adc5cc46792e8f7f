"""Shell commands that run before a job's command: variables, secrets, packages, debug hold.

They become ``preCommands`` of the job's deployment: one shell runs them before the command, every OpenPAI
cluster supports them, and ``--preview`` shows them.
"""

from __future__ import annotations

import os

from openpaisdk.errors import UsageError
from openpaisdk.jobs.command import as_text
from openpaisdk.jobs.option_values import items_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from openpaisdk.jobs.option_values import Items

    Variables = Items | Mapping[str, object]

PYTHON = "python"
# Every Python process of the task then loads the runtime's start-up file.
CAPTURE = (
    "export PAI_CAPTURE_LOGGING=1\n"
    'export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}${PAI_RUNTIME_DIR:-/usr/local/pai}/start"'
)
# A script, not a link: a Python that is started through a link does not find its virtual environment.
_SHIM = '#!/bin/sh\nIFS= read -r pai_python < "${0%/*}/interpreter"\nexec "$pai_python" '
END_OF_SECRET = "PAI_END_OF_SECRET"


def parse_variables(
    env: Variables | None, secrets: Variables | None
) -> tuple[dict[str, str], dict[str, str]]:
    """The values of ``--env`` and of ``--secret``."""
    plain, secret = _parse(env, "--env"), _parse(secrets, "--secret")
    if both := [name for name in plain if name in secret]:
        raise UsageError(f"{both[0]} is given with --env and with --secret: use only one of them.")
    return plain, secret


def _parse(given: Variables | None, option: str) -> dict[str, str]:
    """Variables by name; one without a value (a bare NAME, or None in Python) has the value it has here."""
    pairs: list[tuple[str, object]]
    if isinstance(given, dict):
        pairs = [(str(name), value) for name, value in given.items()]
    else:
        split = (item.partition("=") for item in items_of(given, option))
        pairs = [(name, value if equals else None) for name, equals, value in split]
    out: dict[str, str] = {}
    for name, value in pairs:
        if not name.isidentifier() or not name.isascii():
            shown = "..." if option == "--secret" else name if value is None else f"{name}={value}"
            raise UsageError(f"{option} {shown}: use NAME=value; a name has only letters, digits and _.")
        text = as_text(_value_from_environment(name, option) if value is None else str(value))
        if "\0" in text:
            raise UsageError(f"{option} {name}: a variable cannot contain a NUL character.")
        out[name] = text
    return out


def _value_from_environment(name: str, option: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise UsageError(
            f"{option} {name}: there is no such variable here; use {option} {name}=value."
        ) from None


class PreCommands:
    """What the ``preCommands`` of one job consist of."""

    __slots__ = (
        "array_commands",
        "capture_logging",
        "debug_hold",
        "environment",
        "pip_installs",
        "pip_path",
        "python",
        "sdk_requirement",
        "secrets",
        "transfer_commands",
    )

    def __init__(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        python: str = "",
        pip_installs: Sequence[str] = (),
        pip_path: str = "",
        sdk_requirement: str = "",
        debug_hold: int = 0,
        capture_logging: bool = False,
    ):
        self.environment = dict(environment or {})
        self.secrets = dict(secrets or {})
        self.python = python
        self.pip_installs = list(dict.fromkeys(pip_installs))
        self.pip_path = pip_path
        self.sdk_requirement = sdk_requirement
        self.debug_hold = debug_hold
        self.capture_logging = capture_logging
        # Download of sources and upload of outputs, on a cluster that does not do it itself.
        self.transfer_commands: list[str] = []
        # Values of the tasks of an array.
        self.array_commands: list[str] = []

    def pre_commands(self) -> list[str]:
        """All commands, in the order in which they run."""
        from shlex import quote

        lines: list[str] = []
        if self.debug_hold:
            lines.append(_debug_hold(self.debug_hold))
        # After the hold: the later of two EXIT traps wins, and outputs must not be lost.
        lines += self.transfer_commands
        lines += [f"export {name}={quote(value)}" for name, value in self.environment.items()]
        lines += self.array_commands
        lines += [_secret(name) for name in self.secrets]
        if self.python:
            lines.append(_select_python(self.python))
        if self.sdk_requirement or self.pip_installs:
            lines.append(self._install_packages())
        if self.capture_logging:
            lines.append(CAPTURE)
        return lines

    def _install_packages(self) -> str:
        """Install packages. Our runtime builds an environment, which it reuses for the same packages."""
        from shlex import quote

        pip = quote(self.pip_path) if self.pip_path else f"{quote(self.python or PYTHON)} -m pip"
        by_pip = [f"{pip} install -U {quote(self.sdk_requirement)}"] if self.sdk_requirement else []
        if self.pip_installs:
            by_pip.append(f"{pip} install {' '.join(map(quote, self.pip_installs))}")
        if self.pip_path:
            return "\n".join(by_pip)
        packages = [self.sdk_requirement, *self.pip_installs] if self.sdk_requirement else self.pip_installs
        arguments = ["--python", self.python, *packages] if self.python else packages
        return (
            "if command -v pai-runtime >/dev/null 2>&1; then\n"
            f"  pai_packages=$(pai-runtime packages {' '.join(map(quote, arguments))})\n"
            '  eval "$pai_packages"\n'
            "else\n" + "".join(f"  {line}\n" for line in by_pip) + "fi"
        )


def _select_python(python: str) -> str:
    """Make ``python``, ``python3`` and ``pip`` mean this interpreter, in all programs of the task."""
    from shlex import quote

    message = quote(f"The task has no Python {python} (--python).")
    return (
        f"pai_python=$(command -v {quote(python)} || true)\n"
        'if [ ! -x "$pai_python" ] || [ -d "$pai_python" ]; then\n'
        f"  echo {message} >&2; exit 127\n"
        "fi\n"
        "case $pai_python in /*) ;; *) pai_python=$PWD/$pai_python ;; esac\n"
        "pai_folder=$PWD/.pai/python\n"
        'mkdir -p "$pai_folder" 2>/dev/null || pai_folder=$(mktemp -d)\n'
        'printf "%s\\n" "$pai_python" > "$pai_folder/interpreter"\n'
        f"""cat > "$pai_folder/python" <<'END'\n{_SHIM}"$@"\nEND\n"""
        f"""cat > "$pai_folder/pip" <<'END'\n{_SHIM}-m pip "$@"\nEND\n"""
        'chmod +x "$pai_folder/python" "$pai_folder/pip"\n'
        'cp -p "$pai_folder/python" "$pai_folder/python3"\n'
        'cp -p "$pai_folder/pip" "$pai_folder/pip3"\n'
        'export PATH="$pai_folder:$PATH"'
    )


def _secret(name: str) -> str:
    """Export one secret. Its value is inserted as it is in the task, so no shell may parse it."""
    return f"{name}=$(cat <<'{END_OF_SECRET}'\n<% $secrets.{name} %>\n{END_OF_SECRET}\n)\nexport {name}"


def _debug_hold(time_s: int) -> str:
    # Without the TERM trap a stopped shell would also hold, until it is killed.
    return (
        "trap 'trap - EXIT; exit 143' TERM\n"
        "trap 'pai_code=$?; if [ $pai_code -ne 0 ]; then "
        f'echo "The command failed ($pai_code); the task is held for {time_s} seconds (--debug-hold)." >&2;'
        f" sleep {time_s}; fi; exit $pai_code' EXIT"
    )
