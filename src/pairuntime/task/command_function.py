"""A command as a function, as ``submitit.helpers`` has it."""

import os
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from collections.abc import Mapping, Sequence


class CommandFailed(subprocess.CalledProcessError, RuntimeError):
    """A command that ended with another exit status than 0, with what it wrote to its error output."""

    def __str__(self) -> "str":
        errors = (self.stderr or "").strip()
        return "%s\n%s" % (super().__str__(), errors) if errors else super().__str__()


class CommandFunction:
    """A command as a function: ``CommandFunction(["ls", "-l"])()`` returns what it wrote to its output.

    Arguments of the call are appended, ``key=value`` as ``--key=value``. Space around the output is dropped.
    A non-zero exit status raises `CommandFailed`, which is a ``subprocess.CalledProcessError``.
    """

    def __init__(
        self,
        command: "Sequence[str]",
        verbose: "bool" = True,
        cwd: "str | os.PathLike[str] | None" = None,
        env: "Mapping[str, str] | None" = None,
    ) -> "None":
        if isinstance(command, str) or not all(isinstance(word, str) for word in command):
            raise TypeError("The command is a list of strings, like ['ls', '-l'].")
        self.command = list(command)
        self.verbose = verbose
        self.cwd = None if cwd is None else str(cwd)
        self.env = dict(env or {})

    def __call__(self, *args: "object", **kwargs: "object") -> "str":
        command_line = self.command + [str(arg) for arg in args]
        command_line += ["--%s=%s" % (key, value) for key, value in kwargs.items()]
        process = subprocess.Popen(
            command_line,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            cwd=self.cwd,
            env=dict(os.environ, **self.env),
        )
        output, errors = process.communicate()
        if self.verbose:
            print(output, end="", flush=True)
        if self.verbose or process.returncode:
            sys.stderr.write(errors)
            sys.stderr.flush()
        if process.returncode:
            raise CommandFailed(process.returncode, command_line, output, errors)
        return output.strip()
