"""Notebook as a job: the checked file, the command that runs it in the task, parameters, names of results.

``pai notebook-job``, ``Job.from_notebook`` and ``submit_notebook`` are built on ``open_notebook``.
"""

from __future__ import annotations

import json
import os

from openpaisdk.jobs.job_names import ALLOWED, random_letters
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from openpaisdk.jobs.job_options import JobOptions

SUFFIX = ".ipynb"
MAX_NAME_LENGTH = 40
"""Of the part of a job's name that is made from the notebook's."""
RESULT_SUFFIXES = (".html", ".executed.ipynb")
"""The page first. The executed notebook never has the name of the notebook itself, which must not be lost."""
# The second one is the runtime that `storage_upload` sends to OpenPAI's own server.
_COMMAND = (
    "if command -v pai-runtime >/dev/null 2>&1; then pai-runtime {arguments}; "
    'else "$(command -v python3 || command -v python)" "$pai_runtime" {arguments}; fi'
)


class Notebook:
    """A notebook on this machine, and the folder whose files are uploaded with it."""

    __slots__ = ("folder", "name")

    def __init__(self, folder: str, name: str):
        self.folder = folder
        self.name = name
        """Path of the notebook relative to the folder."""

    @property
    def stem(self) -> str:
        return os.path.basename(self.name).removesuffix(SUFFIX)

    @property
    def results(self) -> list[str]:
        """Names of the output files: the page, and the executed notebook."""
        return [self.stem + suffix for suffix in RESULT_SUFFIXES]

    def generate_job_name(self) -> str:
        """``<notebook>_<random>``."""
        kept = "".join(c if c in ALLOWED else "_" for c in self.stem[:MAX_NAME_LENGTH])
        return f"{kept.lstrip('-') or 'notebook'}_{random_letters(6)}"

    def command(self, parameters: Iterable[str] | dict[str, object] = ()) -> str:
        """The shell line that runs the notebook in the task; parameters as values or as ``NAME=VALUE``."""
        from shlex import join

        arguments = ["notebook"]
        if isinstance(parameters, dict):
            arguments += ["--parameters", json.dumps(_check_values(parameters))] if parameters else []
        else:
            for text in parameters:
                arguments += ["-p", _check_parameter(text)]
        return _COMMAND.format(arguments=join([*arguments, self.path]))

    def server_command(self) -> str:
        """The shell line that runs a Jupyter server in the task."""
        from shlex import join

        return _COMMAND.format(arguments=join(["notebook-server", self.path]))

    @property
    def path(self) -> str:
        """Path of the notebook in the job."""
        return self.name.replace(os.sep, "/")

    def add_to(self, options: JobOptions) -> JobOptions:
        """The options of a job, with the notebook as a file that is uploaded in any case."""
        options.needed_files.append(self.name)
        return options


def open_notebook(path: str | os.PathLike[str]) -> Notebook:
    """The notebook in a file, checked before anything is uploaded.

    The files of the current folder travel with it, or of its own folder if it is in another one.
    """
    path = os.fspath(path)
    check_notebook(path)
    folder = os.path.realpath(os.path.dirname(path) or ".")
    here = os.path.realpath(os.getcwd())
    root = here if folder == here or folder.startswith(here.rstrip(os.sep) + os.sep) else folder
    return Notebook(root, os.path.relpath(os.path.join(folder, os.path.basename(path)), root))


def check_notebook(path: str) -> None:
    """Raise ``UsageError`` unless the file is a notebook."""
    try:
        with open(path, encoding="utf-8") as f:
            content = json.load(f)
    except OSError as e:
        raise UsageError(f"The notebook {path} cannot be read: {e.strerror}.") from None
    except (ValueError, RecursionError) as e:
        hint = f"A notebook ends in {SUFFIX}; a script is run with: pai sub -- python {path}"
        reason = f": {e}" if path.endswith(SUFFIX) and not isinstance(e, UnicodeDecodeError) else ""
        raise UsageError(
            f"{path} is not a notebook: it is not JSON{reason}.",
            hint="Open it in Jupyter, or get an intact copy of it." if path.endswith(SUFFIX) else hint,
        ) from None
    is_notebook = isinstance(content, dict) and isinstance(content.get("nbformat"), int)
    if not is_notebook or not isinstance(content.get("cells", content.get("worksheets")), list):
        raise UsageError(
            f"{path} is not a notebook: it is JSON, but has no cells.",
            hint="Give the .ipynb file that Jupyter saved.",
        )


def _check_parameter(text: str) -> str:
    name, equals, _ = text.partition("=")
    if not equals:
        raise UsageError(f"-p {text}: use NAME=VALUE.")
    _check_name(name)
    return text


def _check_values(parameters: dict[str, object]) -> dict[str, object]:
    for name in parameters:
        _check_name(name)
    try:
        json.dumps(parameters)
    except (TypeError, ValueError):
        raise UsageError(
            "Parameters of a notebook are numbers, text, None, True, False, and lists and mappings of them."
        ) from None
    return parameters


def _check_name(name: object) -> None:
    from keyword import iskeyword

    if not isinstance(name, str) or not name.isidentifier() or iskeyword(name):
        raise UsageError(f"{name!r} cannot be a parameter: it is not the name of a variable.")
