"""Job protocol: parsing, validation, rendering; states, completion, retries, exit codes, task environment.

Pure functions: text or plain values in, typed immutable values or one ``ProtocolError`` out. No I/O, no
clock. Imports only ``errors``. Names are loaded on first use, so importing this package costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.errors import ProtocolError as ProtocolError
    from openpaisdk.protocol.completion import RolePolicy as RolePolicy
    from openpaisdk.protocol.completion import TaskOutcome as TaskOutcome
    from openpaisdk.protocol.completion import Verdict as Verdict
    from openpaisdk.protocol.completion import decide as decide
    from openpaisdk.protocol.completion import role_policy as role_policy
    from openpaisdk.protocol.convert import Conversion as Conversion
    from openpaisdk.protocol.convert import convert_v1 as convert_v1
    from openpaisdk.protocol.exit_codes import ExitMatch as ExitMatch
    from openpaisdk.protocol.exit_codes import ExitSpec as ExitSpec
    from openpaisdk.protocol.exit_codes import exit_spec as exit_spec
    from openpaisdk.protocol.exit_codes import exit_specs as exit_specs
    from openpaisdk.protocol.exit_codes import match_exit as match_exit
    from openpaisdk.protocol.extras import Additions as Additions
    from openpaisdk.protocol.extras import Sources as Sources
    from openpaisdk.protocol.job_builder import JobBuilder as JobBuilder
    from openpaisdk.protocol.json_schema import job_schema as job_schema
    from openpaisdk.protocol.model import JobSpec as JobSpec
    from openpaisdk.protocol.model import Resources as Resources
    from openpaisdk.protocol.model import Secrets as Secrets
    from openpaisdk.protocol.model import TaskRole as TaskRole
    from openpaisdk.protocol.overrides import apply_overrides as apply_overrides
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
    from openpaisdk.protocol.task_environment import GangEnvironment as GangEnvironment
    from openpaisdk.protocol.task_environment import TaskPlacement as TaskPlacement
    from openpaisdk.protocol.task_environment import build_task_environment as build_task_environment
    from openpaisdk.protocol.v1 import JobV1 as JobV1
    from openpaisdk.protocol.v1 import read_job_v1 as read_job_v1
    from openpaisdk.protocol.v2_reader import mask_secrets as mask_secrets
    from openpaisdk.protocol.v2_reader import read_job as read_job
    from openpaisdk.protocol.v2_reader import render_secrets as render_secrets
    from openpaisdk.protocol.v2_reader import secret_texts as secret_texts
    from openpaisdk.protocol.v2_reader import task_script as task_script
    from openpaisdk.protocol.v2_reader import task_scripts as task_scripts
    from openpaisdk.protocol.versions import check_job as check_job
    from openpaisdk.protocol.versions import job_version as job_version
    from openpaisdk.protocol.versions import read_any_job as read_any_job
    from openpaisdk.protocol.yaml_dump import dump_yaml as dump_yaml

_EXPORTS = {
    "job_builder": "JobBuilder",
    "completion": "RolePolicy TaskOutcome Verdict decide role_policy",
    "convert": "Conversion convert_v1",
    "yaml_dump": "dump_yaml",
    "task_environment": "GangEnvironment TaskPlacement build_task_environment",
    "exit_codes": "ExitMatch ExitSpec exit_spec exit_specs match_exit",
    "extras": "Additions Sources",
    "v2_reader": "mask_secrets read_job render_secrets secret_texts task_script task_scripts",
    "json_schema": "job_schema",
    "model": "JobSpec Resources Secrets TaskRole",
    "ports": "draw_port draw_ports",
    "problems": "Problem",
    "retries": "RetryCounts RetryDecision RetryPolicy decide_retry",
    "states": "SubState attempt_state debug_id framework_name job_state split_framework",
    "overrides": "apply_overrides",
    "v1": "JobV1 read_job_v1",
    "versions": "check_job job_version read_any_job",
}
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names.split()}

__all__ = sorted((*_MODULE_OF, "ProtocolError"))


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "ProtocolError":
        value: object = import_module("openpaisdk.errors").ProtocolError
    elif name in _MODULE_OF:
        value = getattr(import_module(f"openpaisdk.protocol.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'openpaisdk.protocol' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
