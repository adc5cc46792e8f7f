"""Reader of version 2 jobs: text or plain data in, a :class:`JobSpec` or one ``ProtocolError`` out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from paiprotocol.errors import ProtocolError
from paiprotocol.jobs.cross_references import check, check_array
from paiprotocol.jobs.document import Document, read, to_plain_data
from paiprotocol.jobs.extras import RUNTIME_PLUGIN, additions
from paiprotocol.jobs.limits import ExpansionBudget
from paiprotocol.jobs.model import MASK, Deployment, JobSpec, Prerequisite, Resources, Secrets, TaskRole
from paiprotocol.jobs.problems import Path, Problem, raise_on_errors, shorten
from paiprotocol.jobs.secret_references import replace_aliases
from paiprotocol.jobs.template import as_text, render
from paiprotocol.jobs.v2_schema import JOB_V2

DEFAULT_VIRTUAL_CLUSTER = "default"
# Shorter values are not masked in logs.
MIN_SECRET_CHARS = 4
DEFAULT_PORTS = {"ssh": 1, "http": 1}


def read_job(
    source: str | bytes | Mapping[str, Any],
    *,
    file: str | None = None,
    strict: bool = False,
    stored: bool = False,
) -> JobSpec:
    """Read a job from text (JSON or YAML) or plain data. All problems come in one ProtocolError.

    ``strict`` also rejects what OpenPAI accepts, such as a reference to an undefined parameter; otherwise
    that is in ``job.warnings``. ``stored`` reads a job that was accepted before: its secrets may be masked,
    and it may have unlimited retries (-1, -2), which only a version 1 job can request.
    """
    return parse_job_v2(read(source, file), strict=strict, stored=stored)


def parse_job_v2(document: Document, *, strict: bool = False, stored: bool = False) -> JobSpec:
    """The version 2 job of a parsed document."""
    aliases = replace_aliases(document)
    data = document.data
    checked = _as_submitted(data) if stored else data
    problems = [*check(data), *aliases]
    if not stored:
        problems += [*_names_like_options(data), *check_array(data)]
    if not JOB_V2.accepts(checked):
        hint = _other_version(data)
        if hint is not None:
            problems = [hint]
        else:
            # A list of its own, which is full only of errors.
            errors: list[Problem] = []
            JOB_V2.explain(checked, (), errors)
            problems = [*problems, *errors]
    job = to_model(data, raise_on_errors(problems, strict, document.locate) if problems else ())
    if not stored:
        # Only to raise an error for scripts that are too long.
        task_scripts(job, job.secrets)
    return job


def _names_like_options(data: Any) -> list[Problem]:
    """Names that a command line takes for an option: of the job, which users type, and of images, which a
    container client gets. Jobs that were accepted before keep theirs."""
    if not isinstance(data, dict):
        return []
    named: list[tuple[Path, Any]] = [(("name",), data.get("name"))]
    prerequisites = data.get("prerequisites")
    if isinstance(prerequisites, list):
        named += [
            (("prerequisites", i, "uri"), item.get("uri"))
            for i, item in enumerate(prerequisites)
            if isinstance(item, dict) and item.get("type") == "dockerimage"
        ]
    return [
        Problem(path, 'must not begin with "-"', found=shorten(repr(name)))
        for path, name in named
        if isinstance(name, str) and name.startswith("-")
    ]


def _as_submitted(data: Any) -> Any:
    """A stored job without what only stored jobs may have."""
    if not isinstance(data, dict):
        return data
    data = dict(data)
    if data.get("secrets") == MASK:
        del data["secrets"]
    if data.get("jobRetryCount") in (-1, -2):
        del data["jobRetryCount"]
    return data


def _other_version(data: Any) -> Problem | None:
    if isinstance(data, dict) and "jobName" in data and "protocolVersion" not in data:
        hint = "convert it, or submit it as a version 1 job"
        return Problem(("jobName",), "this is a version 1 job", suggestion=hint, at_key=True)
    return None


def to_model(data: dict[str, Any], warnings: Iterable[Problem] = ()) -> JobSpec:
    """The typed job of validated plain data."""
    prerequisites = tuple(map(_prerequisite, data.get("prerequisites", ())))
    images = {item.name: item.uri for item in prerequisites if item.type == "dockerimage"}
    defaults = data.get("defaults", {})
    deployments = tuple(map(_deployment, data.get("deployments", ())))
    active = defaults.get("deployment")
    deployment = next((item for item in deployments if item.name == active), None) if deployments else None
    extras = data.get("extras", {})
    secrets = data.get("secrets")
    return JobSpec(
        name=data["name"],
        virtual_cluster=defaults.get("virtualCluster") or DEFAULT_VIRTUAL_CLUSTER,
        job_retry_count=int(data.get("jobRetryCount", 0)),
        task_roles=tuple([_role(name, role, images, deployment) for name, role in data["taskRoles"].items()]),
        gang=extras.get("gangAllocation", True),
        priority=(extras.get("hivedScheduler") or {}).get("jobPriorityClass"),
        secrets=Secrets(secrets if isinstance(secrets, dict) else None),
        parameters=data.get("parameters", {}),
        prerequisites=prerequisites,
        deployments=deployments,
        defaults=defaults,
        extras=extras,
        additions=additions(extras),
        warnings=tuple(warnings),
        raw=data,
    )


def _prerequisite(item: dict[str, Any]) -> Prerequisite:
    uri = item.get("uri")
    return Prerequisite(
        item["name"],
        item["type"],
        tuple(uri) if isinstance(uri, list) else uri,
        item.get("plugin"),
        tuple(item.get("require", ())),
        item,
    )


def _deployment(item: dict[str, Any]) -> Deployment:
    roles = item.get("taskRoles", {}).items()
    return Deployment(
        item["name"],
        {name: tuple(role.get("preCommands", ())) for name, role in roles},
        {name: tuple(role.get("postCommands", ())) for name, role in roles},
    )


def _role(
    name: str, role: dict[str, Any], images: Mapping[str, Any], deployment: Deployment | None
) -> TaskRole:
    get = role.get
    instances = int(get("instances", 1))
    completion = get("completion") or {}
    resources = role["resourcePerInstance"]
    ports = resources.get("ports")
    container = get("extraContainerOptions") or {}
    shm = container.get("shmMB")
    return TaskRole(
        name,
        instances,
        int(completion.get("minFailedInstances") or 1),
        int(completion.get("minSucceededInstances") or instances),
        int(get("taskRetryCount", 0)),
        role["dockerImage"],
        images.get(role["dockerImage"]),
        Resources(
            int(resources["cpu"]),
            int(resources["memoryMB"]),
            int(resources["gpu"]),
            {**DEFAULT_PORTS, **{label: int(count) for label, count in ports.items()}}
            if ports
            else DEFAULT_PORTS,
        ),
        None if shm is None else int(shm),
        container.get("infiniband", False),
        tuple(role["commands"]),
        deployment.pre_commands.get(name, ()) if deployment else (),
        deployment.post_commands.get(name, ()) if deployment else (),
        get("data"),
        get("output"),
        get("script"),
        tuple(get("prerequisites", ())),
    )


def task_scripts(job: JobSpec, secrets: Mapping[str, Any], *, after_pre_commands: str = "") -> dict[str, str]:
    """Scripts of all roles with everything inserted; ProtocolError when they are too long together.

    ``after_pre_commands``: the cluster's own command, in scripts of roles that have preCommands or plugins.
    """
    budget = ExpansionBudget()
    scripts = {role.name: task_script(role, job, budget, after_pre_commands) for role in job.task_roles}
    if secrets:
        return {name: render_secrets(script, secrets, budget) for name, script in scripts.items()}
    return scripts


def task_script(
    role: TaskRole | str, job: JobSpec, budget: ExpansionBudget | None = None, after_pre_commands: str = ""
) -> str:
    """Script of the role's tasks: plugin, deployment and role commands in order.

    All references are rendered except ``$secrets``, which :func:`render_secrets` inserts where the task runs.
    """
    task_role = job.role(role) if isinstance(role, str) else role
    budget = budget or ExpansionBudget()
    before: list[str] = []
    after: list[str] = []
    commands = (*task_role.pre_commands, *task_role.commands, *task_role.post_commands)
    budget.spend(sum(map(len, commands)))
    if task_role.prerequisites or RUNTIME_PLUGIN in job.extras:
        from paiprotocol.jobs.plugins import plugin_scripts

        before, after = plugin_scripts(task_role, job, budget)
    before += task_role.pre_commands
    if before and after_pre_commands:
        before.append(after_pre_commands)
    commands = (*before, *task_role.commands, *task_role.post_commands, *after)
    text = "\n".join(commands)
    if "<%" in text:
        scopes = _scopes(task_role, job)
        commands = tuple(render(command, scopes, budget) for command in commands)
    return "\n".join(command.strip() for command in commands).replace("\r\n", "\n")


def _scopes(role: TaskRole, job: JobSpec) -> dict[str, Any]:
    scopes: dict[str, Any] = {"parameters": job.parameters}
    for kind, name in (("data", role.data), ("output", role.output), ("script", role.script)):
        item = job.prerequisite(kind, name) if name else None
        if item is not None:
            scopes[kind] = item.fields
    return scopes


def render_secrets(text: str, secrets: Mapping[str, Any], budget: ExpansionBudget | None = None) -> str:
    """``text`` with ``<% $secrets.x %>`` replaced; everything else is unchanged."""
    return render(text, {"secrets": secrets}, budget)


def mask_secrets(config: str | bytes | Mapping[str, Any]) -> str:
    """The job as text to store and show, with its top-level secrets replaced by ``******``.

    YAML keeps its comments and order; if the secrets cannot be replaced in place, or a comment repeats one,
    and for data, it is JSON.
    """
    if isinstance(config, str | bytes):
        document = read(config)
        text, data = document.text or "", document.data
        if not isinstance(data, dict) or "secrets" not in data:
            return text
        masked = None if text.lstrip().startswith("{") else _mask_span(text)
        if masked is not None and not _has_in_comments(masked, secret_texts(data["secrets"])):
            return masked
        if replace_aliases(document):
            # No reference can stand for some of them.
            data = _mask_values(data, set(secret_texts(data["secrets"])))
    else:
        data = to_plain_data(config)
        if not isinstance(data, dict) or "secrets" not in data:
            return json.dumps(data, ensure_ascii=False)
    return json.dumps({**data, "secrets": MASK}, ensure_ascii=False)


def _has_in_comments(text: str, secrets: Sequence[str]) -> bool:
    """Whether what may be a comment contains one of these secrets: a # may also be part of a value."""
    comments = [line.partition("#")[2] for line in text.splitlines() if "#" in line]
    return any(secret in comment for comment in comments for secret in secrets)


def secret_texts(value: Any) -> list[str]:
    """Every text by which a task or its output may show these secrets: inserted values and their lines.

    Short ones are left out: they would mask ordinary text, and cannot be kept secret anyway.
    """
    texts: dict[str, None] = {}
    for text in _scalar_texts(value):
        # A tool that prints a key or a configuration may indent each line of it.
        for part in (text, *(line.strip() for line in text.splitlines())):
            if len(part) >= MIN_SECRET_CHARS:
                texts[part] = None
    return list(texts)


def _scalar_texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _scalar_texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _scalar_texts(item)
    elif value is not None and not isinstance(value, bool):
        yield as_text(value)
        if isinstance(value, float):
            # Inside of an object that is inserted as a whole.
            yield json.dumps(value)


def _mask_values(value: Any, secrets: Set[str]) -> Any:
    if isinstance(value, dict):
        return {MASK if key in secrets else key: _mask_values(item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask_values(item, secrets) for item in value]
    return MASK if not isinstance(value, bool) and as_text(value) in secrets else value


def _mask_span(text: str) -> str | None:
    from paiprotocol.jobs.yaml_nodes import compose, top_level_span

    span = top_level_span(compose(text, ""), "secrets")
    if span is None:
        return None
    start, end, _ = span
    block = text[start:end]
    if "&" in block or "*" in block:
        # Anchors or aliases may link the block to the rest of the text: replacing it would break that.
        return None
    tail = "\n" if block.endswith("\n") else ""
    masked = f'{text[:start]}secrets: "{MASK}"{tail}{text[end:]}'
    try:
        same = read(masked).data == {**read(text).data, "secrets": MASK}
    except ProtocolError:
        same = False
    return masked if same else None
