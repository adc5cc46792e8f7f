"""Any input gives a job or a ProtocolError, in bounded time and memory."""

from __future__ import annotations

import json
import time
import tracemalloc

import jsonschema
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from openpaisdk.jobs.job_names import expand_name
from paiprotocol.errors import ProtocolError, UsageError
from paiprotocol.jobs import (
    JobBuilder,
    check_job,
    convert_v1,
    dump_yaml,
    job_schema,
    mask_secrets,
    read_any_job,
    read_job,
    read_job_v1,
    task_script,
)
from paiprotocol.jobs.document import MAX_BYTES, read
from paiprotocol.jobs.problems import Problem
from paiprotocol.jobs.schema_nodes import Fields
from paiprotocol.jobs.v1 import JOB_V1
from paiprotocol.jobs.v2_schema import JOB_V2

GOOD = (
    JobBuilder("a")
    .image("i")
    .data("d", "u")
    .parameter("p", 1)
    .secret("s", "x")
    .role("main", ["echo <% $parameters.p %>"], data="d", ports={"x": 1}, min_failed=1)
    .deployment("dep", before={"main": ["x"]})
    .priority("test")
    .to_dict()
)
GOOD_V1 = {
    "jobName": "small",
    "image": "ubuntu",
    "retryCount": 1,
    "taskRoles": [{"name": "main", "command": "true", "portList": [{"label": "a", "portNumber": 1}]}],
    "jobEnvs": {"A": "b"},
}


def problems_of(source, file=None):
    with pytest.raises(ProtocolError) as caught:
        read_job(source, file=file)
    assert caught.value.problems
    assert all(isinstance(problem, Problem) for problem in caught.value.problems)
    assert len(str(caught.value)) < 50_000
    return caught.value.problems


def alias_bomb(levels=30, width=10):
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


def cyclic():
    data = dict(GOOD)
    data["parameters"] = {"self": data}
    return data


def wide_cycle():
    items: list = []
    items += [items] * 10
    return {**GOOD, "parameters": {"x": items}}


def nested(depth):
    value: object = 1
    for _ in range(depth):
        value = [value]
    return {**GOOD, "parameters": {"x": value}}


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("", "document is empty"),
        (b"", "document is empty"),
        ("# only a comment", "document is empty"),
        ("~", "expected a mapping"),
        ("- a\n- b", "expected a mapping, found a list"),
        ("[]", "found an empty list"),
        ("just text", "expected a mapping"),
        ("42", "expected a mapping"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "binary"),
        (b"\0" * 100, "binary"),
        ("a\0b", "binary"),
        ("name: caf\xe9".encode("latin-1"), "save the file as UTF-8"),
        (b"\xff\xfea", "UTF-16"),
        ("a: 1\n\tb: 2", "tab"),
        ("a:\n\t- b", "tab"),
        ("a: b: c", "quote the value"),
        ("a: 'b", "closing quote"),
        ("a: [1, 2", "bracket"),
        ("a: *b", "alias"),
        ("a: @b", "quotes"),
        ("a: 1\n---\nb: 2", "second one"),
        ("a: 1\n b: 2", "indentation"),
        ('a: "\\q"', "backslash"),
        ("a: \x07", "does not allow"),
        ("? [a]\n: 1", "a key must be text"),
        ("a: !!python/object/apply:os.system [id]", "tag"),
        ("a: !!binary aGk=", "tag"),
        ("!!set {a}", "tag"),
        ("a: !!int x", "cannot be read as int"),
        ("<<: 1", "takes a mapping"),
        ("a: .nan", "NaN"),
        ("a: -.inf", "infinity"),
        ("a: 1e999", "too large"),
        ('{"a": NaN}', "NaN"),
        ('{"a": Infinity}', "infinity"),
        ('{"a": 1e999}', "too large"),
        ('{"a": 1,\n "b" 2}', "not JSON"),
        ('{"a": "\\ud800"}', "a text file cannot contain"),
        ('{"a": "\\u0000"}', "a text file cannot contain"),
        ('a: "\\0"', "a text file cannot contain"),
        ('{"a": ' + "9" * 5000 + "}", ""),
        ("a: " + "[" * 500 + "]" * 500, "deeper than"),
        ("{" * 20_000, ""),
        ("[" * 900_000, "deeper than"),
        ('{"a":' * 300 + "1" + "}" * 300, "deeper than"),
        ("- " * 2000 + "x", "deeper than"),
        ("\n".join("  " * n + "a:" for n in range(500)), "deeper than"),
        (alias_bomb(), "more"),
        ("a: &a [*a]", "contains itself"),
        ("a: &a {b: *a}", "contains itself"),
        ("a: &a\n  <<: *a", "contains itself"),
        ("%TAG ! tag:x,1:\n" * 100 + "---\na: 1", "%TAG"),
        ("x" * (MAX_BYTES + 1), "MiB"),
        (b"x" * (MAX_BYTES + 1), "MiB"),
        (cyclic(), "deeper than"),
        (wide_cycle(), ""),
        (nested(100), "deeper than"),
        ({**GOOD, "parameters": {"x": float("nan")}}, "NaN"),
        ({**GOOD, "parameters": {"x": object()}}, "a object is not a valid value"),
        ({**GOOD, "parameters": {"x": b"bytes"}}, "bytes"),
        ({**GOOD, "parameters": {1: 2}}, "a key must be text"),
        ({**GOOD, "parameters": {"x": "\ud800"}}, "a text file cannot"),
        ({**GOOD, "parameters": {"\ud800": 1}}, "a text file cannot"),
        ({**GOOD, "parameters": {"x": {1, 2}}}, "set"),
        ([], "found an empty list"),
        (None, "found nothing"),
        (3, "found 3"),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, str | bytes) else type(value).__name__,
)
def test_bad_input_is_rejected_with_a_reason(source, says):
    begun = time.thread_time()
    message = " ".join(map(str, problems_of(source, "job.yaml")))
    assert says in message
    assert time.thread_time() - begun < 3


@pytest.mark.parametrize("name", ["-h", "--help", "-"])
def test_names_that_look_like_options_are_rejected(name):
    """A command that gets such a name as an argument would take it for an option."""
    image, *others = GOOD["prerequisites"]
    for changed in ({**GOOD, "name": name}, {**GOOD, "prerequisites": [{**image, "uri": name}, *others]}):
        with pytest.raises(ProtocolError, match='must not begin with "-"'):
            read_job(changed)
        read_job(changed, stored=True)  # accepted by an earlier version
    for field in ("jobName", "image"):
        with pytest.raises(ProtocolError, match="not beginning with -"):
            read_job_v1({**GOOD_V1, field: name})
    with pytest.raises(UsageError, match="do not begin with -"):
        expand_name(name)


def test_too_large_text_is_rejected_before_parsing():
    source = b"a: 1\n" * (20 * 1024 * 1024)
    tracemalloc.start()
    begun = time.thread_time()
    problems_of(source)
    assert time.thread_time() - begun < 0.5
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        "a: [" + "x, " * (MAX_BYTES // 4) + "]",
        "a: '" + "x" * (MAX_BYTES - 10) + "'",
        "\n".join(f"k{n}: v" for n in range(80_000)),
        json.dumps({str(n): n for n in range(60_000)}),
        "a: " + "- " * 30 + "&x y\n" * 1000,
        "a: &a x\nb: [" + "*a, " * 200_000 + "]",
        "a: |\n" + "  x\n" * 200_000,
        "# " + "c" * (MAX_BYTES - 10),
        "a: " + "0x" + "f" * (MAX_BYTES - 10),
        "<% " * (MAX_BYTES // 4),
        "/*" * (MAX_BYTES // 3),
        "{" + '\\"' * (MAX_BYTES // 3),
        '{"a' + '\\"' * (MAX_BYTES // 3),
        "{//" * (MAX_BYTES // 4),
        "{" + ",}" * (MAX_BYTES // 3),
        "{" + "," + " " * (MAX_BYTES - 10),
    ],
    ids=range(16),
)
@pytest.mark.slow
def test_largest_texts_take_bounded_time(text):
    begun = time.thread_time()
    for _ in range(MAX_BYTES // 10):
        str(begun)
    looked = time.thread_time()
    for reader in (read_job, read_any_job, read_job_v1):
        with pytest.raises(ProtocolError):
            reader(text)
    # At most fifty small steps per byte, measured in the time of one step on this machine.
    assert time.thread_time() - looked < 50 * 10 * (looked - begun)


def test_large_commands_with_incomplete_references_are_fast():
    for command in (
        "<% " * 200_000,
        "<%" + " " * 500_000,
        "<% $parameters" + ".a" * 200_000 + " %>",
        "<%$a[" * 100_000,
    ):
        begun = time.thread_time()
        job = read_job({**GOOD, "taskRoles": {"main": {**GOOD["taskRoles"]["main"], "commands": [command]}}})
        task_script("main", job)
        assert time.thread_time() - begun < 3


def test_every_duplicate_key_is_reported_with_its_position():
    text = "a: 1\nb:\n  c: 1\n  c: 2\na: 3\nd: [{x: 1, x: 2}]\n"
    places = {(problem.key, problem.line, problem.column) for problem in problems_of(text)}
    assert places == {("b.c", 4, 3), ("a", 5, 1), ("d[0].x", 6, 12)}
    (problem,) = problems_of('{"a": 1,\n "a": 2}')
    assert (problem.key, problem.line, problem.column) == ("a", 2, 2)


def test_dates_and_odd_numbers_stay_text():
    texts = "a: 2019-01-01\nb: yes\nc: 007\nd: 1_000\ne: '5'\nf: 12:30\n"
    data = read(texts + "g: 0x1f\nh: 0o17\ni: 1e3\nj: +1\nk: .5\nl:\n").data
    assert data == {
        "a": "2019-01-01",
        "b": "yes",
        "c": "007",
        "d": "1_000",
        "e": "5",
        "f": "12:30",
        "g": 31,
        "h": 15,
        "i": 1000.0,
        "j": 1,
        "k": 0.5,
        "l": None,
    }


def test_keys_are_always_text_and_merges_work():
    assert read("1: a\ntrue: b\nnull: c\n1.0: d").data == {"1": "a", "true": "b", "null": "c", "1.0": "d"}
    assert read("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}").data["y"] == {"a": 1, "b": 3}
    assert read("y: {'<<': 1}").data == {"y": {"<<": 1}}


def test_problems_in_json_have_a_line():
    text = json.dumps({**GOOD, "nmae": 1}, indent=2)
    (problem,) = problems_of(text, "job.json")
    line = text.splitlines().index('  "nmae": 1') + 1
    assert str(problem).startswith(f"job.json:{line}:3: nmae: unknown key")


@pytest.mark.parametrize("end", ["", "\n", "\n\n  \n", "\r\n"])
@pytest.mark.parametrize(
    "text",
    [
        *(
            "a: 1\nb: {cpu: 1",
            "a: 1\nb: [1,",
            "a: 1\nb: [",
            "a: 1\nb: 'text",
            'a: 1\nb: "text\n\nc: 3',
            "a: 1\nextras",
        ),
        *("a: 1\nb: @x", '{"a": 1,\n "b": [1', '{"a": 1,\n "b":', '{"a": 1,\n "b": "text'),
    ],
)
def test_problem_at_the_end_of_a_text_is_in_a_line_of_it(text, end):
    (problem,) = problems_of(text + end, "job.yaml")
    assert problem.line == 2 and problem.column <= len(text.splitlines()[1]) + 1, problem


def test_long_problem_list_is_truncated():
    data = {**GOOD, **{f"key{n}": n for n in range(500)}}
    with pytest.raises(ProtocolError) as caught:
        read_job(data)
    lines = str(caught.value).splitlines()
    assert lines[0] == "The job has more than 100 problems; the first 100 are:"
    assert len(lines) == 101 and len(caught.value.problems) == 100


def test_remarks_do_not_hide_errors():
    commands = [f"<% $parameters.x{n} %>" for n in range(300)]
    data = json.loads(json.dumps(GOOD))
    next(iter(data["taskRoles"].values()))["commands"] = commands
    assert len(read_job(data).warnings) == 100
    with pytest.raises(ProtocolError) as caught:
        read_job({**data, "name": 7})
    assert [problem.key for problem in caught.value.problems] == ["name"]


def test_messages_are_always_short_and_printable():
    (problem,) = problems_of({**GOOD, "name": "\x1b[31m" + "x" * 10_000})
    assert len(str(problem)) < 300
    assert str(problem).isprintable()
    (problem,) = problems_of({**GOOD, "k\n" * 1000: 1})
    assert len(str(problem)) < 300
    assert str(problem).isprintable()


# --- random input ---

readers = st.sampled_from([read_job, read_any_job, read_job_v1, check_job, mask_secrets, convert_v1])


@given(readers, st.binary(max_size=400))
@example(read_job, b"{\xff")
def test_any_bytes_are_read_or_rejected(reader, source):
    try:
        reader(source)
    except ProtocolError as error:
        str(error)


yaml_bits = st.sampled_from(
    [
        *"{}[]:,-?&*!|>'\"%@`#~\n\t \r",
        *(
            "  ",
            "a",
            "name: x\n",
            "taskRoles:\n",
            "<<: ",
            "&a ",
            "*a ",
            "!!",
            "- ",
            "\\u",
            ".nan",
            "1e9",
            "0x",
        ),
        *("---\n", "...\n", "%YAML 1.1\n", "secrets: ", "é", "\U0001f600", "\u2028", "\ufeff", "//", "/*"),
    ]
)


@given(readers, st.lists(yaml_bits, max_size=40).map("".join))
def test_yaml_like_text_is_read_or_rejected(reader, source):
    try:
        reader(source)
    except ProtocolError as error:
        assert "Traceback" not in str(error)


values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 3),
        st.just(2**70),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from(["<% $parameters.p %>", "******", "main", "d", "i", "a b", "2", b"x"]),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def places(value, path=()):
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


@st.composite
def mutate(draw, good):
    """A valid job with up to three of its parts replaced, removed or renamed."""
    data = json.loads(json.dumps(good))
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from([place for place in places(data) if place]))
        target = data
        for part in path[:-1]:
            target = target[part]
        change = draw(st.sampled_from(["replace", "remove", "rename", "add"]))
        if change == "replace":
            target[path[-1]] = draw(values)
        elif change == "remove":
            del target[path[-1]]
        elif isinstance(target, dict):
            key = draw(st.text(max_size=5) | st.sampled_from(["instances", "extras", "completion", "plugin"]))
            target[key] = target.pop(path[-1]) if change == "rename" else draw(values)
    return data


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(mutate(GOOD))
def test_mutated_job_is_usable_or_rejected(data):
    try:
        job = read_job(data)
    except ProtocolError as error:
        assert error.problems
        return
    assert job.total_tasks >= 1
    for role in job.task_roles:
        task_script(role, job)
    job.role_policies()
    repr(job)
    again = read_job(json.dumps(job.raw))
    assert again == job
    assert read_job(dump_yaml(job.raw)) == job


V2_SCHEMA = jsonschema.Draft7Validator(job_schema("v2"))
V1_SCHEMA = jsonschema.Draft7Validator(job_schema("v1"))


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.tuples(st.just(2), mutate(GOOD)), st.tuples(st.just(1), mutate(GOOD_V1))))
def test_accepts_explain_and_json_schema_agree(case):
    version, data = case
    node: Fields = JOB_V2 if version == 2 else JOB_V1
    try:
        data = read(data).data
    except ProtocolError:
        return
    explained: list[Problem] = []
    node.explain(data, (), explained)
    accepted = node.accepts(data)
    assert accepted == (not explained)
    schema = V2_SCHEMA if version == 2 else V1_SCHEMA
    if accepted:
        assert schema.is_valid(data)
    elif schema.is_valid(data):
        # Only size is not limited by the JSON Schema.
        assert any("largest" in str(p) or str(2**70) in str(p) for p in explained), explained


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(mutate(GOOD_V1))
def test_mutated_version_1_job_is_converted_or_rejected(data):
    try:
        conversion = convert_v1(data, user="u")
    except ProtocolError:
        return
    for role in conversion.job.task_roles:
        task_script(role, conversion.job)
