"""Shell commands that run before a job's command: variables, secrets, packages, debug hold.

They become ``preCommands`` of the job's deployment: one shell runs them before the command, every OpenPAI
cluster supports them, and ``--preview`` shows them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from openpaisdk.jobs.job_options import JobOptions

PYTHON = "python"
# Every Python process of the task then loads the runtime's start-up file.
CAPTURE = (
    "export PAI_CAPTURE_LOGGING=1\n"
    'export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}${PAI_RUNTIME_DIR:-/usr/local/pai}/start"'
)
# A script, not a link: a Python that is started through a link does not find its virtual environment.
_SHIM = '#!/bin/sh\nIFS= read -r pai_python < "${0%/*}/interpreter"\nexec "$pai_python" '
HOLD_START = "trap 'trap - EXIT; exit 143' TERM"
"""First line of the command that sets up a hold."""
END_OF_SECRET = "PAI_END_OF_SECRET"


class PreCommands:
    """The ``preCommands`` of a job with these options.

    ``packages``: those to install; by default the ones of the options. ``sdk_requirement``: this package.
    """

    __slots__ = ("options", "packages", "sdk_requirement")

    def __init__(self, options: JobOptions, packages: Sequence[str] | None = None, sdk_requirement: str = ""):
        self.options = options
        self.packages = list(dict.fromkeys(options.pip_installs if packages is None else packages))
        self.sdk_requirement = sdk_requirement

    def pre_commands(self) -> list[str]:
        """All commands, in the order in which they run."""
        # The hold is first: the later of two EXIT traps wins, and outputs must not be lost.
        return [*self.hold(), *self.setup()]

    def hold(self) -> list[str]:
        """Commands that keep a failed task for debugging."""
        return [_debug_hold(self.options.debug_hold_s)] if self.options.debug_hold_s else []

    def setup(self) -> list[str]:
        """Commands that set up the task: files, variables, programs."""
        from shlex import quote

        options = self.options
        lines = list(options.transfer_commands)
        lines += [f"export {name}={quote(value)}" for name, value in options.env.items()]
        lines += options.array.export_commands() if options.array else []
        lines += [_secret(name) for name in options.secrets]
        if options.python:
            lines.append(_select_python(options.python))
        if self.sdk_requirement or self.packages:
            lines.append(self._install_packages())
        if options.capture_logging:
            lines.append(CAPTURE)
        return lines

    def _install_packages(self) -> str:
        """Install packages. Our runtime builds an environment, which it reuses for the same packages."""
        from shlex import quote

        pip_path, python = self.options.pip_path, self.options.python
        pip = quote(pip_path) if pip_path else f"{quote(python or PYTHON)} -m pip"
        by_pip = [f"{pip} install -U {quote(self.sdk_requirement)}"] if self.sdk_requirement else []
        if self.packages:
            by_pip.append(f"{pip} install {' '.join(map(quote, self.packages))}")
        if pip_path:
            return "\n".join(by_pip)
        packages = [self.sdk_requirement, *self.packages] if self.sdk_requirement else self.packages
        arguments = ["--python", python, *packages] if python else packages
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
    # Without the TERM trap a stopped shell would also hold, until it is killed. The job's page in the portal
    # reads the first line and creates the file.
    time = "1 second" if time_s == 1 else f"{time_s} seconds"
    release = "${PAI_WORK_DIR:-.}/.pai/release"
    return (
        f"{HOLD_START}\n"
        "trap 'pai_code=$?; if [ $pai_code -ne 0 ]; then "
        f'echo "The command failed ($pai_code); the task is held for {time} (--debug-hold),'
        ' since $(date -u +%Y-%m-%dT%H:%M:%SZ)." >&2; '
        f'echo "Look into it with pai exec; the file {release} ends the hold." >&2; '
        f'pai_left={time_s}; while [ $pai_left -gt 0 ] && [ ! -e "{release}" ]; do '
        "sleep 1; pai_left=$((pai_left - 1)); done; fi; exit $pai_code' EXIT"
    )
