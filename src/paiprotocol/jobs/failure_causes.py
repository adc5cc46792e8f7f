"""Causes of failure that people meet: recognised by exit status and log, explained, with what to do.

The exit code table tells which *kind* of failure a code is; a cause tells what happened in this task. Only
the end of the log counts, and of a Python program only exceptions with their traceback: a program that merely
prints such a text fails for another reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paiprotocol.jobs.log_end import LogEnd, RaisedException

COMMAND_ERROR = 220
OUT_OF_MEMORY = 221
GPU_OUT_OF_MEMORY = 226
DATA_ERROR = 229
SYNTAX_ERROR = 231
IMPORT_ERROR = 232

_MAX_QUOTE = 200
_PYTHON_STATUS = 1
"""Exit status of Python after an exception that was not caught."""
_SHELL_STATUSES = frozenset((126, 127))
"""Exit statuses of a shell that could not start a command."""
_FIRST_SIGNAL_STATUS = 129

# Exceptions that only say that another process failed: its own exception, printed before, is the cause.
_OF_LAUNCHERS = frozenset(
    (
        "BrokenProcessPool",
        "CalledProcessError",
        "ChildFailedError",
        "ProcessExitedException",
        "ProcessRaisedException",
        "SignalException",
    )
)

PYPI_NAMES = {
    "absl": "absl-py", "paddle": "paddlepaddle",
    "attr": "attrs", "bs4": "beautifulsoup4", "Crypto": "pycryptodome", "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil", "docx": "python-docx", "dotenv": "python-dotenv", "faiss": "faiss-cpu",
    "fitz": "PyMuPDF", "git": "GitPython", "google.protobuf": "protobuf", "hydra": "hydra-core",
    "imblearn": "imbalanced-learn", "jwt": "PyJWT", "Levenshtein": "python-Levenshtein",
    "magic": "python-magic", "mpl_toolkits": "matplotlib", "MySQLdb": "mysqlclient", "OpenSSL": "pyOpenSSL",
    "osgeo": "GDAL", "PIL": "pillow", "pkg_resources": "setuptools", "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary", "serial": "pyserial", "skimage": "scikit-image",
    "sklearn": "scikit-learn", "umap": "umap-learn", "usb": "pyusb", "wx": "wxPython", "yaml": "pyyaml",
    "zmq": "pyzmq", "distutils": "setuptools",
}  # fmt: skip
"""PyPI packages of modules whose name differs."""

KNOWN_PACKAGES = frozenset((
    "accelerate", "bitsandbytes", "boto3", "cloudpickle", "cupy", "dask", "datasets", "deepspeed",
    "diffusers", "einops", "flax", "fsspec", "gymnasium", "h5py", "huggingface_hub", "ipykernel", "jax",
    "joblib", "keras", "librosa", "lightgbm", "lightning", "matplotlib", "mlflow", "nbclient",
    "nbconvert", "networkx", "numba", "numpy", "omegaconf", "onnx", "onnxruntime", "openai", "optax",
    "optuna", "pandas", "papermill", "peft", "plotly", "polars", "psutil", "pyarrow", "pydantic",
    "pytest", "pytorch_lightning", "requests", "rich", "s3fs", "safetensors", "scipy", "seaborn",
    "sentencepiece", "six", "spacy", "statsmodels", "submitit", "sympy", "tensorboard", "tensorboardX",
    "tensorflow", "tiktoken", "timm", "tokenizers", "torch", "torchaudio", "torchmetrics", "torchvision",
    "tqdm", "transformers", "wandb", "webdataset", "xarray", "xgboost", "xxhash", "zarr", "zstandard",
))  # fmt: skip
"""PyPI packages that training programs import by their own name. Any other name may be a private one."""

_MORE_MEMORY = "Request more with --mem (`memoryMB` in a job file), or use less, for example a smaller batch"
_SMALLER_ON_GPU = (
    "Use a smaller batch or model, or a GPU with more memory; if other processes use the GPU, see nvidia-smi "
    "in the task"
)
TOO_MANY_PROCESSES = "The task could not start another process or thread: it has as many as it may have"
FEWER_PROCESSES = (
    "Start fewer at a time (workers, threads, background commands), and wait for them to end; an "
    "administrator can raise `processes` of the engine"
)
_LOOK_AT_PEERS = (
    "Read the logs of all tasks (pai logs --role R --index N): the first error is the cause. If there is "
    "none, check the network between them (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME; NCCL_DEBUG=INFO shows "
    "more), or raise the timeout of init_process_group"
)
_MORE_SHARED_MEMORY = (
    "Raise `extraContainerOptions.shmMB` in the job file, or use fewer workers (num_workers) or smaller "
    "batches"
)


@dataclass(frozen=True, slots=True)
class Cause:
    """A known cause of failure. ``code``: the exit code to report; None: that of the exit status alone."""

    code: int | None
    reason: str
    solution: str
    matched: str


def find_cause(status: int, log: LogEnd) -> Cause | None:
    """The cause of a failure with this exit status, None if no known one is found."""
    if status in _SHELL_STATUSES:
        return _last_match(_SHELL_RULES, log, log.final_from, status)
    if status >= _FIRST_SIGNAL_STATUS:
        return _last_match(_SIGNAL_RULES, log, log.final_from, status)
    raised = final_exception(status, log)
    if raised is not None and (cause := _explain(raised)):
        return cause
    return _last_match(_TEXT_RULES, log, log.final_from if raised is None else raised.at, status)


def final_exception(status: int, log: LogEnd) -> RaisedException | None:
    """The exception that ended a program: the last one, unless it is the consequence of an earlier one."""
    raised = log.exceptions()
    if status != _PYTHON_STATUS:  # it may have been caught, and something else ended the program later
        raised = [each for each in raised if each.at >= log.final_from]
    own = [each for each in raised if each.name not in _OF_LAUNCHERS]
    last = next(reversed(own or raised), None)
    if last is None or not _is_peer_failure(last):
        return last
    # Processes that wait for each other: the one that fails first is the cause, the others lose it.
    earlier = [each for each in own if each.at >= log.final_from and not _is_peer_failure(each)]
    return next((each for each in reversed(earlier) if _explain(each)), last)


# -- exceptions -----------------------------------------------------------------------------------


def _explain(raised: RaisedException) -> Cause | None:
    rule = _EXCEPTIONS.get(raised.name)
    if rule is not None and (cause := rule(raised)):
        return cause
    for pattern, explain in _MESSAGES:
        if pattern.search(f"{raised.text}\n{raised.details}"):
            return explain(raised)
    return None


def _missing_module(raised: RaisedException) -> Cause | None:
    match = re.match(r"No module named '?(?P<name>[\w.]+)'?(?P<rest>.*)", raised.message)
    if not match:
        return _import_error(raised)
    if "is not a package" in match["rest"]:
        return Cause(
            IMPORT_ERROR,
            _quote(raised.message),
            "A file of your own with that name hides the package: rename it",
            raised.text,
        )
    return _not_installed(match["name"], raised.text)


def missing_module(reason: str) -> str:
    """The module that is missing, if that is the reason of a failure; else empty."""
    match = _NOT_INSTALLED.match(reason)
    return match["module"] if match else ""


_NOT_INSTALLED = re.compile(r"The module (?P<module>[\w.]+) is not installed where the task runs")


def _not_installed(module: str, matched: str) -> Cause:
    name = module.partition(".")[0]
    package = PYPI_NAMES.get(module) or PYPI_NAMES.get(name)
    if package is None and name in KNOWN_PACKAGES:
        package = name
    if package:
        solution = f"Add --pip-installs {package} (in a job file: the command pip install {package})"
    else:
        # A private name, perhaps: the package that a public index has under it is then a stranger's.
        solution = (
            f"Upload a module of your own with --sources. If {name} is a package of a public index, check "
            "that it is the one that you mean, then add it with --pip-installs"
        )
    return Cause(IMPORT_ERROR, f"The module {module} is not installed where the task runs", solution, matched)


def _import_error(raised: RaisedException) -> Cause | None:
    if library := _MISSING_LIBRARY.search(raised.message):
        return _missing_library(IMPORT_ERROR, library["library"], raised.text)
    if raised.message.startswith("No module named "):
        return _missing_module(raised)
    return Cause(
        IMPORT_ERROR,
        f"An import failed: {_quote(raised.message) or 'ImportError'}",
        "Install versions that fit together, such as --pip-installs PACKAGE==VERSION, or correct the import",
        raised.text,
    )


def _missing_library(code: int, library: str, matched: str) -> Cause:
    if library.startswith("libGL.so"):
        solution = "Use --pip-installs opencv-python-headless, not opencv-python, or an image with libgl1"
    else:
        solution = (
            "Use an image that contains it, or install the package that provides it in the job's commands"
        )
    return Cause(code, f"The shared library {library} is missing where the task runs", solution, matched)


def _syntax_error(raised: RaisedException) -> Cause:
    return Cause(
        SYNTAX_ERROR,
        f"Python cannot read {raised.file}, line {raised.line}: {_quote(raised.message)} ({raised.name})",
        "Correct that line; if it is right for your Python, choose that version with --python or -i",
        raised.text,
    )


def _missing_file(raised: RaisedException) -> Cause:
    path = re.search(r"(?P<path>(['\"]).+?\2)(?: -> |$)", raised.message)
    what = f"The file {path['path']}" if path else "A file"
    return Cause(
        DATA_ERROR,
        f"{what} does not exist where the task runs",
        "Upload it with --sources, copy it from the storage first (pai copy), or correct the path; a program "
        "must be installed or part of the image",
        raised.text,
    )


def _forbidden_file(raised: RaisedException) -> Cause:
    return Cause(
        DATA_ERROR,
        _quote(re.sub(r"^\[Errno \d+\] ", "", raised.message)) or raised.name,
        "Correct the path or the permissions; a task may write to its working folder and $PAI_OUTPUT_DIR",
        raised.text,
    )


def _out_of_memory(raised: RaisedException) -> Cause:
    detail = f": {_quote(raised.message)}" if raised.message else f" ({raised.name})"
    return Cause(OUT_OF_MEMORY, f"The program could not allocate memory{detail}", _MORE_MEMORY, raised.text)


def _gpu_out_of_memory(raised: RaisedException) -> Cause:
    return Cause(
        GPU_OUT_OF_MEMORY, "The program requested more GPU memory than is free", _SMALLER_ON_GPU, raised.text
    )


def _no_space(matched: str) -> Cause:
    if "/dev/shm" in matched or "shared memory" in matched:
        return Cause(None, "The shared memory of the task (/dev/shm) is full", _MORE_SHARED_MEMORY, matched)
    what = "The quota of" if "quota" in matched.lower() else "The disk of"
    return Cause(
        None,
        f"{what} the folder that the task writes to is used up",
        "Write less, or to another storage, and delete what is not needed any more; `df -h` in the job shows "
        "the space, and an administrator can provide more",
        matched,
    )


def _no_shared_memory(raised: RaisedException) -> Cause:
    return Cause(None, "The shared memory of the task (/dev/shm) is full", _MORE_SHARED_MEMORY, raised.text)


def _no_gpu(raised: RaisedException) -> Cause:
    return Cause(
        None,
        "The program uses a GPU that the task does not have",
        "Request GPUs with --gpu (`gpu` in a job file); CUDA_VISIBLE_DEVICES in the task lists those it has",
        raised.text,
    )


def _shared_gpu(raised: RaisedException) -> Cause:
    return Cause(
        None,
        "Two processes of the job use the same GPU, which NCCL does not allow",
        "Start as many processes as the task has GPUs, and select the GPU of each by its local rank "
        "(torch.cuda.set_device)",
        raised.text,
    )


def _device_error(raised: RaisedException) -> Cause:
    return Cause(
        None,
        "A program on the GPU made an invalid access, most often with an index out of range",
        "Run it with --env CUDA_LAUNCH_BLOCKING=1, or on the CPU, to find the operation",
        raised.text,
    )


def _killed(matched: str) -> Cause:
    return Cause(
        None,
        "A process of the task was killed (SIGKILL), most often by the kernel because memory ran out",
        _MORE_MEMORY,
        matched,
    )


def _lost_peers(matched: str) -> Cause:
    return Cause(
        None,
        "The processes of the job lost each other: a collective operation timed out or was interrupted",
        _LOOK_AT_PEERS,
        matched,
    )


_MISSING_LIBRARY = re.compile(r"(?P<library>[^\s:]+\.so[.\d]*): cannot open shared object file")
_PEER_FAILURE = re.compile(
    r"DistBackendError|DistStoreError|DistNetworkError|"
    r"(?i:NCCL (?:error|communicator was aborted|operation.*timed out)|gloo/|Connection closed by peer)|"
    r"(?:client|server) socket has timed out|"
    r"Timed out (?:waiting|after) \d+ ?(?:ms|seconds|milliseconds)"
)


def _is_peer_failure(raised: RaisedException) -> bool:
    return _PEER_FAILURE.search(raised.text) is not None


_EXCEPTIONS: dict[str, Callable[[RaisedException], Cause | None]] = {
    "ModuleNotFoundError": _missing_module,
    "ImportError": _import_error,
    "SyntaxError": _syntax_error,
    "IndentationError": _syntax_error,
    "TabError": _syntax_error,
    "FileNotFoundError": _missing_file,
    "PermissionError": _forbidden_file,
    "IsADirectoryError": _forbidden_file,
    "NotADirectoryError": _forbidden_file,
    "MemoryError": _out_of_memory,
    "_ArrayMemoryError": _out_of_memory,
    "OutOfMemoryError": _gpu_out_of_memory,
}
_MESSAGES: tuple[tuple[re.Pattern[str], Callable[[RaisedException], Cause]], ...] = (
    (
        re.compile(r"(?i)(?:CUDA|HIP)(?: driver| runtime)?(?: error)?(?: \(2\))?[: ]+out of memory|"
                   r"RESOURCE_EXHAUSTED: Out of memory|CUDA_ERROR_OUT_OF_MEMORY"),
        _gpu_out_of_memory,
    ),
    (re.compile(r"No space left on device|Disk quota exceeded"), lambda raised: _no_space(raised.text)),
    (
        re.compile(r"can't start new thread|^BlockingIOError: \[Errno 11\] Resource temporarily unavail"),
        lambda raised: Cause(None, TOO_MANY_PROCESSES, FEWER_PROCESSES, raised.text),
    ),
    (
        re.compile(r"DataLoader worker .*killed by signal: Bus error|unable to \w+ shared memory"),
        _no_shared_memory,
    ),
    (re.compile(r"No CUDA GPUs are available|invalid device ordinal|Found no NVIDIA driver"), _no_gpu),
    (re.compile(r"device-side assert triggered|illegal memory access"), _device_error),
    (re.compile(r"Duplicate GPU detected"), _shared_gpu),
    (
        re.compile(r"DataLoader worker .*killed by signal: Killed|died with <Signals.SIGKILL"),
        lambda raised: _killed(raised.text),
    ),
    (re.compile(r"Cannot allocate memory|can't allocate memory"), _out_of_memory),
    (_PEER_FAILURE, lambda raised: _lost_peers(raised.text)),
)  # fmt: skip


# -- texts of shells, the dynamic loader, pip and libraries ---------------------------------------------


@dataclass(frozen=True, slots=True)
class _TextRule:
    pattern: re.Pattern[str]
    explain: Callable[[re.Match[str]], Cause]
    status: int | None = None


def _last_match(rules: Iterable[_TextRule], log: LogEnd, start: int, status: int) -> Cause | None:
    """The cause of the last line that one of these rules explains."""
    asked = [rule for rule in rules if rule.status in (None, status)]
    for line in reversed(log.lines[start:]):
        for rule in asked:
            if match := rule.pattern.search(line):
                return rule.explain(match)
    return None


def _command_rule(pattern: str, reason: str, solution: str, status: int | None = None) -> _TextRule:
    """A command that the shell could not start; texts may use ``{name}`` and ``{interpreter}``."""

    def explain(match: re.Match[str]) -> Cause:
        name = match["name"].strip()
        hint = solution
        if name == "python":
            hint = "Write python3, or choose an image or a --python that has it"
        interpreter = "python" if name.endswith(".py") else "bash"
        hint = hint.format(name=name, interpreter=interpreter)
        return Cause(COMMAND_ERROR, reason.format(name=name), hint, match.string)

    return _TextRule(re.compile(pattern), explain, status)


_SCRIPT = r"^(?:\S+: )?(?:line \d+: |\d+: )?"
_SHELL_RULES = (
    _TextRule(
        re.compile(r"error while loading shared libraries: (?P<library>[^:]+): cannot open shared object"),
        lambda found: _missing_library(COMMAND_ERROR, found["library"], found.string),
    ),
    _command_rule(
        r"(?i)(?:^|: )(?P<name>[^:]+): command not found",
        "The command {name} does not exist where the task runs",
        "Check its spelling; if it is right, install it or choose an image that contains it (-i)",
        127,
    ),
    _command_rule(
        _SCRIPT + r"(?P<name>[^:\s][^:]*): (?:cannot execute: required file not found|bad interpreter: )",
        "{name} cannot start: the interpreter that its first line names does not exist where the task runs",
        "Correct its first line; line ends of Windows have the same effect: convert them with dos2unix",
    ),
    _command_rule(
        _SCRIPT + r"(?P<name>[^:\s][^:]*): (?:No such file or directory|not found)",
        "{name} does not exist where the task runs",
        "Upload it with --sources, or correct its path; a program must be installed or part of the image",
        127,
    ),
    _command_rule(
        _SCRIPT + r"(?P<name>[^:\s][^:]*): Permission denied",
        "{name} is not executable",
        "Run chmod +x {name} before you submit, or start it with its interpreter: {interpreter} {name}",
        126,
    ),
    _command_rule(
        _SCRIPT + r"(?P<name>[^:\s][^:]*): (?:cannot execute binary file|Exec format error)",
        "{name} is no program for this kind of machine",
        "Build it for the machines of the cluster, or choose an image for them",
        126,
    ),
    _command_rule(
        _SCRIPT + r"(?P<name>[^:\s][^:]*): [Ii]s a directory",
        "{name} is a folder, not a command",
        "Correct the command",
        126,
    ),
)  # fmt: skip

_NO_SPACE = _TextRule(
    re.compile(r"No space left on device|Disk quota exceeded"), lambda found: _no_space(found.string)
)
_KILLED = _TextRule(
    re.compile(r"^(?:.*line \d+:\s+\d+ )?Killed(?:\s.*)?$"), lambda found: _killed(found.string)
)
_COLLECTIVE_TIMEOUT = _TextRule(
    re.compile(
        r"Watchdog caught collective operation timeout|Timed out waiting \d+ms for (?:recv|send) operation"
    ),
    lambda found: _lost_peers(found.string),
)
_BAD_ALLOC = _TextRule(
    re.compile(r"terminate called after throwing an instance of 'std::bad_alloc'"),
    lambda found: Cause(
        None, "The program could not allocate memory (std::bad_alloc)", _MORE_MEMORY, found.string
    ),
)
_CANNOT_FORK = _TextRule(
    re.compile(r"(?i)\b(?:cannot fork|fork(?:: retry)?: Resource temporarily unavailable)"),
    lambda found: Cause(None, TOO_MANY_PROCESSES, FEWER_PROCESSES, found.string),
)
_SIGNAL_RULES = (_COLLECTIVE_TIMEOUT, _BAD_ALLOC, _NO_SPACE, _CANNOT_FORK, _KILLED)
_TEXT_RULES = (
    _CANNOT_FORK,
    _TextRule(
        re.compile(r"^\S*python[\d.]*: (?:.*ModuleNotFoundError: )?No module named '?(?P<name>[\w.]+)"),
        lambda found: _not_installed(found["name"], found.string),
        _PYTHON_STATUS,
    ),
    _TextRule(
        re.compile(r"^\S*python[\d.]*: can't open file '?(?P<path>[^']+?)'?: \[Errno 2\]"),
        lambda found: Cause(
            DATA_ERROR,
            f"The file {found['path']} does not exist where the task runs",
            "Upload it with --sources, or correct its path",
            found.string,
        ),
        2,
    ),
    _TextRule(
        re.compile(r"ERROR: No matching distribution found for (?P<name>.+)"),
        lambda found: Cause(
            None,
            f"pip found no package {found['name']} for the task's Python",
            "Check name and version, and that the task reaches the package index",
            found.string,
        ),
        _PYTHON_STATUS,
    ),
    *_SIGNAL_RULES,
)  # fmt: skip


def _quote(message: str) -> str:
    return message if len(message) <= _MAX_QUOTE else message[: _MAX_QUOTE - 3] + "..."
