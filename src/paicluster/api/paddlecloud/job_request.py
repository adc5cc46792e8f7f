"""A job as PaddleCloud's clients submit it: the fields of `POST /api/v1/jobs`, in both spellings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from paiprotocol.errors import InvalidParameters
from paiprotocol.jobs.limits import MAX_TASKS

DEFAULT_NAME = "paddle-cluster-job"
DEFAULT_MEMORY = "1Gi"
PADDLE_TRAIN = "paddle train"
MAX_NAME_LENGTH = 200
"""With a suffix and the names of its roles it is still a name of a version 2 job."""

_MAX_NUMBER = 1 << 31
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_DATACENTER = re.compile(r"[\w.-]+", re.ASCII)
_MEMORY = re.compile(r"([0-9]{1,15})(Ei|Pi|Ti|Gi|Mi|Ki|E|P|T|G|M|k|K)?")
_UNITS = {"": 1, "k": 1000, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4, "P": 1000**5, "E": 1000**6}
_UNITS |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)}
_MEMORY_FORM = "a whole number with one of the suffixes Ei, Pi, Ti, Gi, Mi, Ki"


class PaddleJob(msgspec.Struct, frozen=True):
    """The submission, validated; stored in `extras.paddlecloud`, and rendered in lists with these keys."""

    name: str
    job_package: str
    datacenter: str = ""
    parallelism: int = 1
    cpu: int = 1
    gpu: int = 0
    memory: str = DEFAULT_MEMORY
    pservers: int = 1
    pscpu: int = 1
    psmemory: str = DEFAULT_MEMORY
    entry: str = ""
    topology: str = ""
    passes: int = 1
    image: str = ""
    registry: str = ""
    faulttolerant: bool = False
    # The package as it was at the submission, in a folder of the job's own.
    package_copy: str = ""

    @property
    def is_v1(self) -> bool:
        """Whether the trainers run `paddle train` with a topology, as programs of Paddle's API v1 do."""
        return bool(self.topology) and self.entry.strip() in ("", PADDLE_TRAIN)


def read_job(fields: Mapping[str, Any]) -> PaddleJob:
    """Validate a submission. Unknown fields are ignored: later clients send more."""
    reader = _Reader(fields)
    parallelism = reader.number("parallelism", 1, minimum=1, maximum=MAX_TASKS)
    job = PaddleJob(
        name=_checked_name(reader.text("name", DEFAULT_NAME)),
        job_package=reader.text("job_package", "") or reader.text("jobPackage", ""),
        datacenter=_checked_datacenter(reader.text("datacenter", "")),
        parallelism=parallelism,
        cpu=reader.number("cpu", 1, minimum=1),
        gpu=reader.number("gpu", 0),
        memory=_checked_memory("memory", reader.text("memory", "") or DEFAULT_MEMORY),
        pservers=reader.number("pservers", parallelism, maximum=MAX_TASKS),
        pscpu=reader.number("pscpu", 1, minimum=1),
        psmemory=_checked_memory("psmemory", reader.text("psmemory", "") or DEFAULT_MEMORY),
        entry=reader.text("entry", ""),
        topology=reader.text("topology", ""),
        passes=reader.number("passes", 1, minimum=1),
        image=reader.text("image", ""),
        registry=reader.text("registry", ""),
        faulttolerant=reader.flag("faulttolerant"),
    )
    if not job.entry.strip() and not job.topology:
        raise InvalidParameters(
            "no topology or entry specified", hint="Name the command that starts a trainer with -entry."
        )
    if job.faulttolerant and job.is_v1:
        raise InvalidParameters(
            "a fault tolerant job needs an entry",
            hint="`paddle train` with a topology cannot go on when trainers come and go.",
        )
    return job


def memory_mb(amount: str) -> int:
    """Megabytes of a validated amount, rounded up."""
    match = _MEMORY.fullmatch(amount)
    assert match is not None
    return -(-int(match[1]) * _UNITS[match[2] or ""] // (1 << 20))


def _checked_name(name: str) -> str:
    if "." in name or "_" in name:
        raise InvalidParameters(
            "jobname can not contain '.' or '_'", hint=f"{name[:80]!r} does: use '-' instead."
        )
    if len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise InvalidParameters(
            f"{name[:80]!r} cannot be the name of a job.",
            hint=f"A name has letters, digits and '-', and at most {MAX_NAME_LENGTH} characters.",
        )
    return name


def _checked_datacenter(name: str) -> str:
    if name and not (_DATACENTER.fullmatch(name) and name not in (".", "..")):
        raise InvalidParameters(f"no datacenter {name[:80]!r}")
    return name


def _checked_memory(field: str, amount: str) -> str:
    match = _MEMORY.fullmatch(amount)
    if match is None:
        raise InvalidParameters(f"{field} must be {_MEMORY_FORM}, for example 10Gi, not {amount[:80]!r}.")
    if not 0 < memory_mb(amount) < _MAX_NUMBER:
        raise InvalidParameters(f"{field} must be more than 0 and less than 2Pi, not {amount}.")
    return amount


class _Reader:
    """Typed access to the fields. null is a missing field."""

    def __init__(self, fields: Mapping[str, Any]):
        self._fields = {name: value for name, value in fields.items() if value is not None}

    def text(self, name: str, default: str) -> str:
        value = self._fields.get(name, default)
        if not isinstance(value, str):
            raise InvalidParameters(f"{name} must be text, not {_json(value)}.")
        if "\0" in value:
            raise InvalidParameters(f"{name} must not contain a NUL character.")
        return value

    def number(self, name: str, default: int, *, minimum: int = 0, maximum: int = _MAX_NUMBER) -> int:
        value = self._fields.get(name, default)
        if type(value) is not int or not minimum <= value <= maximum:
            raise InvalidParameters(
                f"{name} must be a whole number from {minimum} to {maximum}, not {_json(value)}."
            )
        return value

    def flag(self, name: str) -> bool:
        value = self._fields.get(name, False)
        if not isinstance(value, bool):
            raise InvalidParameters(f"{name} must be true or false, not {_json(value)}.")
        return value


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:80]
