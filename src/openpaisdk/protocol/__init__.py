"""A job as data: reading, checking, rendering; states, completion, retries, exit codes, the task environment.

Pure: text or plain values come in, typed immutable values or one ``ProtocolError`` go out. No I/O, no clock.
Names are loaded when they are first used, so importing this room costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.errors import ProtocolError as ProtocolError
    from openpaisdk.protocol.build import JobBuilder as JobBuilder
    from openpaisdk.protocol.completion import RolePolicy as RolePolicy
    from openpaisdk.protocol.completion import TaskOutcome as TaskOutcome
    from openpaisdk.protocol.completion import Verdict as Verdict
    from openpaisdk.protocol.completion import decide as decide
    from openpaisdk.protocol.completion import role_policy as role_policy
    from openpaisdk.protocol.convert import Conversion as Conversion
    from openpaisdk.protocol.convert import convert_v1 as convert_v1
    from openpaisdk.protocol.dump import dump_yaml as dump_yaml
    from openpaisdk.protocol.environment import GangEnvironment as GangEnvironment
    from openpaisdk.protocol.environment import TaskPlace as TaskPlace
    from openpaisdk.protocol.environment import task_environment as task_environment
    from openpaisdk.protocol.exitcodes import ExitMatch as ExitMatch
    from openpaisdk.protocol.exitcodes import ExitSpec as ExitSpec
    from openpaisdk.protocol.exitcodes import exit_spec as exit_spec
    from openpaisdk.protocol.exitcodes import exit_specs as exit_specs
    from openpaisdk.protocol.exitcodes import match_exit as match_exit
    from openpaisdk.protocol.extras import Additions as Additions
    from openpaisdk.protocol.extras import Sources as Sources
    from openpaisdk.protocol.job import mask_secrets as mask_secrets
    from openpaisdk.protocol.job import read_job as read_job
    from openpaisdk.protocol.job import render_secrets as render_secrets
    from openpaisdk.protocol.job import task_script as task_script
    from openpaisdk.protocol.json_schema import job_schema as job_schema
    from openpaisdk.protocol.model import Job as Job
    from openpaisdk.protocol.model import Resources as Resources
    from openpaisdk.protocol.model import Secrets as Secrets
    from openpaisdk.protocol.model import TaskRole as TaskRole
    from openpaisdk.protocol.ports import draw_port as draw_port
    from openpaisdk.protocol.ports import draw_ports as draw_ports
    from openpaisdk.protocol.problems import Problem as Problem
    from openpaisdk.protocol.retries import RetryCounts as RetryCounts
    from openpaisdk.protocol.retries import RetryDecision as RetryDecision
    from openpaisdk.protocol.retries import RetryPolicy as RetryPolicy
    from openpaisdk.protocol.retries import decide_retry as decide_retry
    from openpaisdk.protocol.states import SubState as SubState
    from openpaisdk.protocol.states import attempt_state as attempt_state
    from openpaisdk.protocol.states import debug_id as debug_id
    from openpaisdk.protocol.states import framework_name as framework_name
    from openpaisdk.protocol.states import job_state as job_state
    from openpaisdk.protocol.states import split_framework as split_framework
    from openpaisdk.protocol.updates import apply_updates as apply_updates
    from openpaisdk.protocol.v1 import JobV1 as JobV1
    from openpaisdk.protocol.v1 import read_job_v1 as read_job_v1
    from openpaisdk.protocol.versions import check_job as check_job
    from openpaisdk.protocol.versions import job_version as job_version
    from openpaisdk.protocol.versions import read_any_job as read_any_job

_ROOMS = {
    "build": "JobBuilder",
    "completion": "RolePolicy TaskOutcome Verdict decide role_policy",
    "convert": "Conversion convert_v1",
    "dump": "dump_yaml",
    "environment": "GangEnvironment TaskPlace task_environment",
    "exitcodes": "ExitMatch ExitSpec exit_spec exit_specs match_exit",
    "extras": "Additions Sources",
    "job": "mask_secrets read_job render_secrets task_script",
    "json_schema": "job_schema",
    "model": "Job Resources Secrets TaskRole",
    "ports": "draw_port draw_ports",
    "problems": "Problem",
    "retries": "RetryCounts RetryDecision RetryPolicy decide_retry",
    "states": "SubState attempt_state debug_id framework_name job_state split_framework",
    "updates": "apply_updates",
    "v1": "JobV1 read_job_v1",
    "versions": "check_job job_version read_any_job",
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names.split()}

__all__ = sorted((*_HOME, "ProtocolError"))


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "ProtocolError":
        value: object = import_module("openpaisdk.errors").ProtocolError
    elif name in _HOME:
        value = getattr(import_module(f"openpaisdk.protocol.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module 'openpaisdk.protocol' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
