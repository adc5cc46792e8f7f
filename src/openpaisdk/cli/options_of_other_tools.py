"""Options that other tools have for the same thing, by command: what to write here.

Imported only when an option is unknown.
"""

from __future__ import annotations

_VC = "Write --vc NAME."
_CPU = "Write --cpu N."
_GPU = "Write --gpu N."
_INSTANCES = "Write --instances N."
_AFTER = "Write --after JOB, or --after JOB:end."
_NAME = "Write -j NAME."
_TAIL = "Write --tail N."

OPTIONS_OF_OTHER_TOOLS = {
    "sub": {
        "--wrap": "Write the command itself: pai sub 'first && second'",
        "--partition": _VC,
        "-p": _VC,
        "--gres": _GPU,
        "--gpus": _GPU,
        "-G": _GPU,
        "--cpus-per-task": _CPU,
        "-c": _CPU,
        "--ntasks": _INSTANCES,
        "--nodes": _INSTANCES,
        "--num-nodes": _INSTANCES,
        "-n": _INSTANCES,
        "-N": _INSTANCES,
        "--dependency": _AFTER,
        "-d": _AFTER,
        "-J": _NAME,
        "--memory": "Write --mem 4g, or --memoryMB 4096.",
        "--requeue": "Write --retry N.",
        "--export": "Write --env NAME=VALUE, once for each variable.",
        "--dry-run": "Write --preview.",
        "--detach": "Leave it out: a job runs in the background unless --follow or --wait is given.",
        "--workdir": "Run pai sub in that folder: its files travel with the job.",
    },
    "logs": {"-n": _TAIL, "--lines": _TAIL},
}
