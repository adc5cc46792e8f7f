"""Job protocol: parsing, validation, rendering; states, completion, retries, exit codes, task environment.

Pure functions: text or plain values in, typed immutable values or one ``ProtocolError`` out. No I/O, no
clock. Imports only ``errors``. Names are loaded on first use, so importing this package costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paiprotocol.errors import ProtocolError as ProtocolError
    from paiprotocol.jobs.completion import RolePolicy as RolePolicy
    from paiprotocol.jobs.completion import TaskOutcome as TaskOutcome
    from paiprotocol.jobs.completion import Verdict as Verdict
    from paiprotocol.jobs.completion import decide as decide
    from paiprotocol.jobs.completion import role_policy as role_policy
    from paiprotocol.jobs.convert import Conversion as Conversion
    from paiprotocol.jobs.convert import convert_v1 as convert_v1
    from paiprotocol.jobs.exit_codes import ExitMatch as ExitMatch
    from paiprotocol.jobs.exit_codes import ExitSpec as ExitSpec
    from paiprotocol.jobs.exit_codes import exit_spec as exit_spec
    from paiprotocol.jobs.exit_codes import exit_specs as exit_specs
    from paiprotocol.jobs.exit_codes import match_exit as match_exit
    from paiprotocol.jobs.extras import Additions as Additions
    from paiprotocol.jobs.extras import Sources as Sources
    from paiprotocol.jobs.job_builder import JobBuilder as JobBuilder
    from paiprotocol.jobs.json_schema import job_schema as job_schema
    from paiprotocol.jobs.model import JobSpec as JobSpec
    from paiprotocol.jobs.model import Resources as Resources
    from paiprotocol.jobs.model import Secrets as Secrets
    from paiprotocol.jobs.model import TaskRole as TaskRole
    from paiprotocol.jobs.overrides import apply_overrides as apply_overrides
    from paiprotocol.jobs.ports import draw_port as draw_port
    from paiprotocol.jobs.ports import draw_ports as draw_ports
    from paiprotocol.jobs.problems import Problem as Problem
    from paiprotocol.jobs.retries import RetryCounts as RetryCounts
    from paiprotocol.jobs.retries import RetryDecision as RetryDecision
    from paiprotocol.jobs.retries import RetryPolicy as RetryPolicy
    from paiprotocol.jobs.retries import decide_retry as decide_retry
    from paiprotocol.jobs.states import SubState as SubState
    from paiprotocol.jobs.states import attempt_state as attempt_state
    from paiprotocol.jobs.states import debug_id as debug_id
    from paiprotocol.jobs.states import framework_name as framework_name
    from paiprotocol.jobs.states import job_state as job_state
    from paiprotocol.jobs.states import split_framework as split_framework
    from paiprotocol.jobs.task_environment import GangEnvironment as GangEnvironment
    from paiprotocol.jobs.task_environment import TaskPlacement as TaskPlacement
    from paiprotocol.jobs.task_environment import build_task_environment as build_task_environment
    from paiprotocol.jobs.v1 import JobV1 as JobV1
    from paiprotocol.jobs.v1 import read_job_v1 as read_job_v1
    from paiprotocol.jobs.v2_reader import mask_secrets as mask_secrets
    from paiprotocol.jobs.v2_reader import read_job as read_job
    from paiprotocol.jobs.v2_reader import render_secrets as render_secrets
    from paiprotocol.jobs.v2_reader import secret_texts as secret_texts
    from paiprotocol.jobs.v2_reader import task_script as task_script
    from paiprotocol.jobs.v2_reader import task_scripts as task_scripts
    from paiprotocol.jobs.versions import check_job as check_job
    from paiprotocol.jobs.versions import job_version as job_version
    from paiprotocol.jobs.versions import read_any_job as read_any_job
    from paiprotocol.jobs.yaml_dump import dump_yaml as dump_yaml

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

if not TYPE_CHECKING:  # which cannot evaluate it, and takes all names imported above
    __all__ = sorted((*_MODULE_OF, "ProtocolError"))


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "ProtocolError":
        value: object = import_module("paiprotocol.errors").ProtocolError
    elif name in _MODULE_OF:
        value = getattr(import_module(f"paiprotocol.jobs.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'paiprotocol.jobs' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, "ProtocolError"})
