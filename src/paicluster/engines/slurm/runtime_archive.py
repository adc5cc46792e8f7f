"""Runtime archive on the shared file system, with byte code: a new interpreter starts faster with it."""

from __future__ import annotations

import importlib.util
import io
import marshal
import os
import zipfile
from pathlib import Path
from types import CodeType

from paicluster.engines.common import runtime_install
from paicluster.engines.common.byte_code import with_byte_code

_NAME = "compiled.pyz"
# Beside it, for single tasks: the code of the modules they need, in import order.
PRELOAD = "preload"
_FAST_IMPORTS = "pairuntime.fast_imports"
SINGLE_TASK_MODULES = (
    "pairuntime",
    "pairuntime.reports",
    "pairuntime.slurm",
    "pairuntime.supervisor",
    "pairuntime.supervisor.claim",
    "pairuntime.reports.placement",
    "pairuntime.slurm.allocation",
    "pairuntime.supervisor.output_upload",
    "pairuntime.supervisor.exit_record",
    "pairuntime.supervisor.process_tree",
    "pairuntime.supervisor.limits",
    "pairuntime.supervisor.masking",
    "pairuntime.supervisor.log_segments",
    "pairuntime.local_files",
    "pairuntime.local_files.log_times_format",
    "pairuntime.supervisor.log_times",
    "pairuntime.supervisor.merged_log",
    "pairuntime.supervisor.shared_environment",
    "pairuntime.supervisor.attempt",
    "pairuntime.supervisor.attempt_factory",
    "pairuntime.slurm.slurm_attempt",
    "pairuntime.slurm.node",
    "pairuntime.slurm.gang_launcher",
)
_INCLUDED = (
    "__main__",
    "pairuntime/__",
    "pairuntime/exec_in_task",
    "pairuntime/fast_imports",
    "pairuntime/fuse/",
    "pairuntime/local_files/__init__",
    "pairuntime/local_files/log_times_format",
    "pairuntime/local_files/replaceable_folder",
    "pairuntime/reports/",
    "pairuntime/saved_environment",
    "pairuntime/session/",
    "pairuntime/supervisor/",
    "pairuntime/slurm/",
    "pairuntime/transport/",
)


def install(runtimes: Path, ca_certificates: str = "") -> Path:
    """Install this version's runtime into the folder, unless it is there, and return its path."""
    plain = runtime_install.install(runtimes, ca_certificates)
    target = plain.with_name(_NAME)
    if not target.exists():
        for path in (runtimes, target.parent):
            path.chmod(0o755)
        data = plain.read_bytes()
        plain.chmod(0o644)
        # The archive comes last: it marks the installation complete.
        for path, content in (
            (target.with_name(PRELOAD), _preload_code(data)),
            (target, with_byte_code(data, _INCLUDED, kept=_INCLUDED)),
        ):
            temporary = path.with_suffix(f".{os.getpid()}")
            temporary.write_bytes(content)
            temporary.chmod(0o644)
            temporary.rename(path)
    return target


def loader(archive: Path, folder: Path) -> list[str]:
    """Arguments of Python that run a single task, with the preload code if its Python version matches."""
    program = (
        "import sys, marshal\n"
        "a, b, g = sys.argv[1:]\n"
        "sys.path.append(a)\n"
        "try:\n"
        "    with open(b, 'rb') as f: d = f.read()\n"
        "    m = sys.modules['_frozen_importlib_external'].MAGIC_NUMBER\n"
        "    l, r = marshal.loads(memoryview(d)[4:]) if d[:4] == m else (None, None)\n"
        "except Exception: l = None\n"
        "if l:\n"
        "    n = {'__name__': 'fast_imports'}\n"
        "    exec(l, n)\n"
        "    n['install']()\n"
        "    n['preload'](r, a)\n"
        "from pairuntime.slurm import gang_launcher\n"
        "sys.exit(gang_launcher.run(g))"
    )
    return ["-I", "-S", "-c", program, str(archive), str(archive.with_name(PRELOAD)), str(folder)]


def _preload_code(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = set(archive.namelist())

        def code(module: str) -> CodeType:
            path = module.replace(".", "/")
            path = f"{path}/__init__.py" if f"{path}/__init__.py" in names else f"{path}.py"
            return compile(archive.read(path), path, "exec", dont_inherit=True, optimize=2)

        preload = (code(_FAST_IMPORTS), {module: code(module) for module in SINGLE_TASK_MODULES})
    return importlib.util.MAGIC_NUMBER + marshal.dumps(preload)
