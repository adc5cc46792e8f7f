"""Secret values outside of `secrets`: aliases and passwords become references, or are rejected."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openpaisdk.jobs.short_job_file import read_short_job
from paiprotocol.errors import ProtocolError
from paiprotocol.jobs import mask_secrets, read_job, task_scripts
from paiprotocol.jobs.secret_references import replace_passwords

SECRET = "hunter2-and-longer"
JOB = """\
protocolVersion: 2
name: aliases
type: job
{top}
prerequisites:
- name: image
  type: dockerimage
  uri: ubuntu
  {image}
taskRoles:
  main:
    dockerImage: image
    resourcePerInstance: {{cpu: 1, memoryMB: 16, gpu: 0}}
    commands:
    - {command}
"""


def text_of(top: str, command: str = "echo", image: str = "version: 1.0") -> str:
    return JOB.format(top=top, command=command, image=image)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (text_of(f"secrets: {{a: &x {SECRET}}}\nparameters: {{b: *x}}", "echo <% $parameters.b %>"), SECRET),
        (text_of(f"parameters: &x {{b: {SECRET}}}\nsecrets: *x", "echo <% $parameters.b %>"), SECRET),
        (text_of(f"secrets: &x {{b: {SECRET}}}\nparameters: {{<<: *x}}", "echo <% $parameters.b %>"), SECRET),
        (
            text_of(
                f"secrets: {{a: &x [one, {SECRET}]}}\nparameters: {{b: *x}}", "echo <% $parameters.b[1] %>"
            ),
            SECRET,
        ),
        (text_of("secrets: {pin: &x 271828}\nparameters: {b: *x}", "echo <% $parameters.b %>"), "271828"),
        (text_of("secrets: {a: &x abc}\nparameters: {b: *x}", "echo <% $parameters.b %>"), "abc"),
        (text_of(f"secrets: {{a: &x echo {SECRET}}}", "*x"), SECRET),
    ],
)
def test_alias_of_a_secret_becomes_a_reference(text: str, printed: str) -> None:
    job = read_job(text)
    stored = {**job.raw, "secrets": "******"}
    assert printed not in json.dumps(stored)
    assert json.loads(mask_secrets(text)) == stored
    assert task_scripts(job, job.secrets) == {"main": f"echo {printed}"}


def test_alias_in_the_login_of_an_image_becomes_a_reference() -> None:
    job = read_job(text_of(f"secrets: {{a: &x {SECRET}}}", image="auth: {username: u, password: *x}"))
    assert job.raw["prerequisites"][0]["auth"]["password"] == "<% $secrets.a %>"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (text_of(f"secrets: {{a: &x {SECRET}}}\nextras: {{b: [*x]}}"), "extras.b[0]"),
        (text_of(f"secrets: {{a: &x {SECRET}}}\ndescription: *x"), "description"),
        (text_of(f"secrets: {{a: &x {SECRET}}}\nparameters: {{*x : 1}}"), "parameters"),
        (text_of(f"secrets: {{a.b: &x {SECRET}}}\nparameters: {{c: *x}}"), "parameters.c"),
        (
            text_of(f"secrets: {{a: &x {SECRET}}}\nparameters: {{work_directory: *x}}"),
            "parameters.work_directory",
        ),
        (text_of(f"extras: &x {{secrets: {{a: {SECRET}}}}}\n<<: *x"), "extras.secrets.a"),
    ],
)
def test_alias_where_no_reference_is_rendered_is_rejected(text: str, key: str) -> None:
    with pytest.raises(ProtocolError, match=r"is an alias of secrets\.a") as raised:
        read_job(text, file="job.yaml")
    assert key in [problem.key for problem in raised.value.problems]  # type: ignore[attr-defined]
    assert "job.yaml:" in str(raised.value)
    assert SECRET not in str(raised.value)
    assert SECRET not in mask_secrets(text)


def test_equal_values_that_are_no_aliases_are_left_alone() -> None:
    text = text_of("secrets: {a: echo, b: &x true, c: ~}\nparameters: {on: *x, word: echo}", "echo && ls *")
    assert read_job(text).raw["parameters"] == {"on": True, "word": "echo"}
    as_json = json.dumps(read_job(text).raw)
    assert json.loads(mask_secrets(as_json)) == {**json.loads(as_json), "secrets": "******"}


def test_many_aliases_take_linear_time() -> None:
    many = ",".join(["*x"] * 20_000)
    job = read_job(text_of(f"secrets: {{a: &x {SECRET}}}\nparameters: {{b: [{many}]}}"))
    assert set(job.parameters["b"]) == {"<% $secrets.a %>"}


def test_alias_of_a_secret_in_a_short_job_file_is_rejected() -> None:
    text = f"command: ls\nsecrets: {{KEY: &x {SECRET}}}\nenv: {{COPY: *x}}\n"
    for updates in ((), ("vc=default",)):
        with pytest.raises(ProtocolError, match=r"env\.COPY: is an alias of secrets\.KEY") as raised:
            read_short_job(text, updates=updates)
        assert SECRET not in str(raised.value)


def image(password: str) -> dict[str, Any]:
    return {"name": "i", "type": "dockerimage", "uri": "u", "auth": {"username": "u", "password": password}}


def test_passwords_of_registries_become_secrets() -> None:
    data = {
        "prerequisites": [
            image("one"),
            image("two"),
            image("one"),
            image("<% $secrets.mine %>"),
            {"name": "x"},
        ],
        "secrets": {"mine": "three", "registry_password": "four"},
    }
    replaced = replace_passwords(data)
    assert replaced is not None
    assert [item["auth"]["password"] for item in replaced["prerequisites"][:4]] == [
        "<% $secrets.registry_password_2 %>",
        "<% $secrets.registry_password_3 %>",
        "<% $secrets.registry_password_2 %>",
        "<% $secrets.mine %>",
    ]
    assert replaced["secrets"] == {
        "mine": "three",
        "registry_password": "four",
        "registry_password_2": "one",
        "registry_password_3": "two",
    }
    assert data["prerequisites"][0]["auth"]["password"] == "one"  # type: ignore[index]
    assert (
        replace_passwords({"prerequisites": [image("<% $secrets.mine %>")], "secrets": {"mine": "x"}}) is None
    )


@pytest.mark.parametrize(
    ("password", "sealed"),
    [
        ("x<%y", "x<%y"),
        ("<%x%>", "<%x%>"),
        ("<% $parameters.a %>", "<% $parameters.a %>"),
        ("a<%$b%>", "a<%$b%>"),
        ("head-<% $secrets.mine %>", "head-three"),
    ],
)
def test_password_that_only_contains_a_mark_of_references_becomes_a_secret(
    password: str, sealed: str
) -> None:
    data = {"prerequisites": [image(password)], "secrets": {"mine": "three"}}
    replaced = replace_passwords(data)
    assert replaced is not None
    assert replaced["prerequisites"][0]["auth"]["password"] == "<% $secrets.registry_password %>"
    assert replaced["secrets"]["registry_password"] == sealed


def test_password_of_several_references_stays() -> None:
    secrets = {"a": "one", "b": "two"}
    references = "<% $secrets.a %><%$secrets.b%>"
    assert replace_passwords({"prerequisites": [image(references)], "secrets": secrets}) is None
