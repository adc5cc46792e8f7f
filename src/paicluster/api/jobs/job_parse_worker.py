"""Parse jobs, in the server or in a worker process: `python -m paicluster.api.jobs.job_parse_worker`.

Imports the job protocol alone, so that a worker starts quickly and takes little memory. A worker reads
requests from its standard input and writes responses to its standard output until the input ends. Processor
time of each text, and memory, are limited: the kernel ends a worker that exceeds its limits.
"""

from __future__ import annotations

import copyreg
import json
import os
import pickle
import resource
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, BinaryIO

from paiprotocol.errors import PaiError
from paiprotocol.jobs import (
    Conversion,
    JobSpec,
    convert_v1,
    dump_yaml,
    mask_secrets,
    read_job,
    read_job_v1,
)
from paiprotocol.jobs.secret_references import replace_passwords

MAX_CPU_S = 10
"""Processor time for one text. The slowest text of the largest size takes a third of it."""
MAX_MEMORY_BYTES = 1 << 30
LENGTH = struct.Struct(">I")


def immutable(mapping: dict[str, Any]) -> MappingProxyType[str, Any]:
    return MappingProxyType(mapping)


# A parsed job is immutable: its mappings are proxies, which pickle does not know.
copyreg.pickle(MappingProxyType, lambda proxy: (immutable, (dict(proxy),)))


@dataclass(frozen=True, slots=True)
class ParsedJob:
    job: JobSpec
    # The job as the cluster parses it again: JSON is parsed a hundred times as fast as YAML.
    text: str
    # The submitted text with masked secrets; None without secrets.
    masked: str | None = None


@dataclass(frozen=True, slots=True)
class ParsedV1Job:
    name: str
    conversion: Conversion


@dataclass(frozen=True, slots=True)
class Response:
    """Result of a parse, or its error; and its processor time."""

    result: Any
    error: PaiError | None
    cpu_s: float


def parse_v2(text: str) -> ParsedJob:
    job = read_job(text)
    with_references = replace_passwords(job.raw)
    if with_references is not None:
        text = json.dumps(with_references, ensure_ascii=False)
        job = replace(read_job(with_references), warnings=job.warnings)
    masked = mask_secrets(text) if job.secrets else None
    if not text.lstrip().startswith("{"):
        text = json.dumps(job.raw, ensure_ascii=False)
    return ParsedJob(job, text, masked)


def parse_v1(text: str, user: str, default_fs_uri: str) -> ParsedV1Job:
    job = read_job_v1(text)
    return ParsedV1Job(job.job_name, convert_v1(job, user=user, default_fs_uri=default_fs_uri))


def v2_as_json(text: str) -> str:
    return json.dumps(read_job(text, stored=True).raw, ensure_ascii=False)


def v1_as_json(text: str) -> str:
    return json.dumps(read_job_v1(text).raw, ensure_ascii=False)


def json_as_yaml(text: str) -> str:
    return dump_yaml(json.loads(text))


# By name, because a request names its function.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (parse_v2, parse_v1, v2_as_json, v1_as_json, json_as_yaml)
}


def respond(name: str, arguments: tuple[str, ...]) -> Response:
    began = time.thread_time()
    try:
        result, error = FUNCTIONS[name](*arguments), None
    except PaiError as raised:
        result, error = None, raised.with_traceback(None)
    return Response(result, error, time.thread_time() - began)


def main(requests: BinaryIO, responses: BinaryIO) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while head := requests.read(LENGTH.size):
        name, arguments = pickle.loads(requests.read(LENGTH.unpack(head)[0]))
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit_s = int(used.ru_utime + used.ru_stime) + MAX_CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, resource.RLIM_INFINITY))
        body = pickle.dumps(respond(name, arguments), pickle.HIGHEST_PROTOCOL)
        responses.write(LENGTH.pack(len(body)) + body)
        responses.flush()


if __name__ == "__main__":
    # Another module than `__main__` defines the classes of the responses, for the process that reads them.
    from paicluster.api.jobs import job_parse_worker

    try:
        job_parse_worker.main(sys.stdin.buffer, sys.stdout.buffer)
    except (MemoryError, BrokenPipeError, KeyboardInterrupt):
        # The server notices that it ended. At exit, Python would try to write what is left.
        os._exit(1)
