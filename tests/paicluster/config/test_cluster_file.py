"""cluster.yaml: its settings, and all its errors at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paicluster.cli import main
from paicluster.config.cluster_file import ClusterFileError, load, settings_of
from paicluster.config.sections import Authentication, EngineSettings, RequestLimits
from paicluster.config.settings import Settings
from paicluster.config.template import cluster_file
from paicluster.scheduler.resource_requests import Resources
from paiprotocol.errors import ConfigError


def read(folder: Path, text: str, name: str = "cluster.yaml") -> Settings:
    (folder / name).write_text(text)
    return settings_of(load(folder / name)).check()


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(ClusterFileError) as refused:
        read(folder, text)
    return [str(problem).removeprefix(f"{folder}/cluster.yaml:") for problem in refused.value.problems]


# -- valid files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "{}", "listen: {}\nlimits:\nstorages:\nhome:"])
def test_empty_file_yields_the_defaults(tmp_path: Path, text: str) -> None:
    usual = settings_of({"home": tmp_path})
    assert read(tmp_path, text) == usual


def test_template_yields_the_default_cluster(tmp_path: Path) -> None:
    written = read(tmp_path, cluster_file(tmp_path / "cluster.yaml"))
    usual = settings_of({"home": tmp_path})
    options = {"grace": 10, "limits": "enforce"}
    assert written == Settings(
        **{name: getattr(usual, name) for name in Settings.__slots__ if name != "engines"},
        engines=(EngineSettings("process", "process", options),),
    )


def test_init_selects_the_container_engine_with_podman(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bin = tmp_path / "bin"
    bin.mkdir()
    monkeypatch.setenv("PATH", str(bin))
    assert main(["init", "--home", str(tmp_path / "plain")]) == 0
    assert "image" not in capsys.readouterr().out
    (bin / "podman").write_text("#!/bin/sh\n")
    (bin / "podman").chmod(0o755)
    assert main(["init", "--home", str(tmp_path / "boxed")]) == 0
    assert "jobs will run in the image they name" in capsys.readouterr().out
    kinds = {
        name: settings_of(load(tmp_path / name / "cluster.yaml")).engines[0] for name in ("plain", "boxed")
    }
    assert kinds["plain"].kind == "process"
    assert kinds["boxed"].kind == "container" and kinds["boxed"].options["images"] == "ignore"


def test_template_shows_the_defaults(tmp_path: Path) -> None:
    text = cluster_file(tmp_path / "cluster.yaml")
    shown = yaml.safe_load(text)
    assert (
        load_fields(tmp_path, {"authentication": shown["authentication"]})["authentication"]
        == Authentication()
    )
    assert load_fields(tmp_path, {"limits": shown["limits"]})["limits"] == RequestLimits()
    # Commented-out settings are valid too.
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).touch()
    bare = re.sub(r"(?m)^( *)# ?( *[a-z-]+:.*|  +- .*| +[a-z]+: .*)$", r"\1\2", text)
    whole = read(tmp_path, bare)
    assert whole.external_url == "https://pai.example.com"
    assert whole.virtual_clusters == {"lab": Resources(16, 64000, 2)}
    assert [storage.kind for storage in whole.storages] == ["own", "mount", "hdfs", "s3"]
    assert whole.accounts == {"alice": "asmith"}
    assert whole.tls_cert == str(tmp_path / "cert.pem")
    assert whole.external_ca == str(tmp_path / "ca.pem")


def load_fields(folder: Path, data: dict[str, Any]) -> dict[str, Any]:
    (folder / "cluster.yaml").write_text(json.dumps(data))
    return load(folder / "cluster.yaml")


def test_every_section_is_read_into_settings(tmp_path: Path) -> None:
    for name in ("chain.pem", "secret.pem"):
        (tmp_path / name).touch()
    found = read(
        tmp_path,
        """
home: state
listen:
  host: 0.0.0.0
  port: 443
  external-url: https://pai.example.com/
  tls: {certificate: chain.pem, key: secret.pem}
  cors-origins: ["https://portal.example.com"]
database: /var/db/cluster.db
engines:
  - {name: here, type: process, cpus: 8, memory-mb: 1000, gpus: 0, grace: 2.5, limits: off}
  - {name: big, type: slurm}
virtual-clusters:
  default: {engine: big}
  lab: {gpus: 1, cpus: 2, memory-mb: 3, engine: here}
storages:
  - {name: data, type: mount, path: data, read-only: true, groups: [lab]}
authentication:
  {anonymous-v1-reads: true, open-root: true, session-lifetime: 12h, failed-logins-per-account: null}
limits: {body-mb: 2, slow-client: 5, requests-per-minute: 600}
retention: {days: 1.5, jobs: null, files-mb: 10}
accounts: {alice: asmith, bob: 1001}
allow-shared-account: true
""",
    )
    assert (found.home, found.host, found.port) == (tmp_path / "state", "0.0.0.0", 443)
    assert found.external_url == "https://pai.example.com"
    assert (found.tls_cert, found.tls_key) == (str(tmp_path / "chain.pem"), str(tmp_path / "secret.pem"))
    assert found.cors_origins == ("https://portal.example.com",)
    assert found.database_file == Path("/var/db/cluster.db")
    assert (found.cpus, found.memory_mb, found.gpus, found.grace_s) == (8, 1000, 0, 2.5)
    assert not found.enforce_limits
    assert [(engine.name, engine.kind) for engine in found.engines] == [("here", "process"), ("big", "slurm")]
    assert found.engine_of == {"default": "big", "lab": "here"}
    assert found.virtual_clusters == {"lab": Resources(2, 3, 1)}
    [storage] = found.storages
    assert (storage.path, storage.read_only, storage.groups) == (tmp_path / "data", True, ("lab",))
    assert found.authentication == Authentication(
        anonymous_v1_reads=True, open_root=True, session_s=12 * 3600, logins_per_account=None
    )
    assert (found.limits.body_mb, found.limits.slow_client_s, found.limits.requests_per_minute) == (2, 5, 600)
    assert (found.keep_days, found.keep_jobs, found.keep_mb) == (1.5, None, 10)
    assert found.accounts == {"alice": "asmith", "bob": "1001"}
    assert found.allow_shared_account


def test_engine_may_be_a_type_name(tmp_path: Path) -> None:
    assert read(tmp_path, "engine: process").engines == (EngineSettings(),)


# -- errors --------------------------------------------------------------------------------------


def test_all_errors_are_reported_with_line_and_column(tmp_path: Path) -> None:
    output = problems(
        tmp_path,
        """\
lisen: {}
listen:
  port: "9186"
  external-url: pai.example.com
virtual-clusters:
  lab: {gpu: 2}
  default: {cpus: 3}
  big: {engine: sulrm, cpus: 1}
storages:
  - {name: a b, type: mount}
  - {name: ok, type: hdsf}
allow-shared-account: yes
retention: {days: -1}
authentication: {session-lifetime: 30 days}
""",
    )
    expected = [
        ("1:1: lisen: unknown key", ""),
        ("3:9: listen.port: expected a whole number of at least 0", "write 9186 without quotes"),
        ("4:17: listen.external-url: expected an address such as", "write https:// before it"),
        ("6:9: virtual-clusters.lab.gpu: unknown key", 'did you mean "gpus"?'),
        ("7:12: virtual-clusters.default: has the rest of the resources", ""),
        ("8:17: virtual-clusters.big.engine: there is no engine", 'there is "process"'),
        ('10:5: storages[0]: the key "path" is missing', ""),
        ("10:12: storages[0].name: expected a name", ""),
        ("11:22: storages[1].type: expected one of", 'did you mean "hdfs"?'),
        ("12:23: allow-shared-account: expected true or false", "write true"),
        ("13:19: retention.days: expected a number of 0 or more, found -1", ""),
        ("14:36: authentication.session-lifetime: expected a time such as", ""),
    ]
    assert len(output) == len(expected), output
    for one, (start, end) in zip(output, expected, strict=True):
        assert one.startswith(start) and one.endswith(end)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listen: {host: 0.0.0.0}", "1:16: listen.host: other machines would send passwords in the clear"),
        ("listen: {tls: {certificate: a.pem, key: b.pem}}", "listen.tls.certificate: there is no file"),
        ("engine: process\nengines: [{type: process}]", '1:1: engine: "engines" is set as well'),
        ("engines: [{type: process}, {type: process}]", 'engines[1]: the name "process" is used twice'),
        ("engine: {type: process, cpu: 3}", 'engine.cpu: unknown key; did you mean "cpus"?'),
        ("engine: proces", 'did you mean "process"?'),
        (
            "engine: {type: slurm, options: [-x node7]}",
            "engine.options[0]: expected an option of sbatch by its",
        ),
        ("engine: {type: slurm, options: [constraint]}", "in one word such as --constraint=a100"),
        (
            "engine: {type: slurm, clusters: {a: {options: [--array=1-9]}}}",
            "the cluster sets this option itself",
        ),
        ("engine: {type: slurm, options: [--out=a]}", "leave it out"),
        ("engine: {type: slurm, steady-interval: 0}", "a number from 0.1 to 30"),
        ("engine: {type: slurm, steady-interval: 31}", "a number from 0.1 to 30"),
        ("database: mysql://db/pai", "databases of the kind mysql are not supported"),
        ("database: postgresql://db", "the address names no database"),
        ("database: postgresql://pai:secret@db/pai", "the address contains a password"),
        ("database-password-file: cluster.yaml", "the database is a file, which needs no password"),
        (
            "database: postgresql://pai@db/pai\ndatabase-password-file: missing",
            "there is no file",
        ),
        ("virtual-clusters: {lab: {}}", "virtual-clusters.lab: has no share"),
        ("virtual-clusters: {my-lab: {cpus: 1}}", "a name of letters, digits and _"),
        ("accounts: {alice: lab, bob: lab}", "accounts.bob: alice has the same account"),
        ("listen: {cors-origins: ['https://a.example/path']}", "leave out what follows the port"),
        ("limits: {slow-client: 5 minutes}", 'a time such as "90s", "12h" or "7d"'),
        ("- a\n- list", "expected a mapping, found a list"),
        ("just words", "expected a mapping"),
        ("listen: {port: 1\n", ':1:9: a "," or the closing bracket is missing'),
        ("listen:\n\tport: 1", "this line is indented with a tab"),
        ("home: a\nhome: b", 'the key "home" is duplicated'),
    ],
)
def test_single_error_message(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text)
    assert message in raised.value.message


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.yaml")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**10) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_KEYS = [
    "home", "listen", "database", "engine", "engines", "virtual-clusters", "storages", "authentication",
    "limits", "retention", "accounts", "allow-shared-account", "other",
]  # fmt: skip
_INNER = [
    "host", "port", "tls", "external-url", "type", "name", "path", "url", "lab", "default", "gpus", "cpus",
    "engine", "days", "session-lifetime", "certificate", "key",
]  # fmt: skip


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(_KEYS),
        _VALUES
        | st.dictionaries(st.sampled_from(_INNER), _VALUES, max_size=4)
        | st.lists(st.dictionaries(st.sampled_from(_INNER), _VALUES, max_size=4), max_size=3)
        | st.dictionaries(
            st.sampled_from(_INNER), st.dictionaries(st.sampled_from(_INNER), _VALUES, max_size=3), max_size=3
        ),
        max_size=5,
    )
)
def test_any_content_yields_settings_or_a_config_error(tmp_path: Path, data: dict[str, Any]) -> None:
    try:
        read(tmp_path, json.dumps(data))
    except ConfigError as error:
        assert error.message
    except Exception as error:
        if type(error).__name__ != "UsageError":
            raise


# -- the commands ---------------------------------------------------------------------------------


def test_init_writes_a_valid_private_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "new" / "cluster"
    assert main(["init", "--home", str(home)]) == 0
    assert (home / "cluster.yaml").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700
    assert main(["check-config", str(home / "cluster.yaml")]) == 0
    assert main(["check-config", str(home)]) == 0
    assert "is valid" in capsys.readouterr().out
    (home / "cluster.yaml").write_text("port: 1")
    assert main(["init", "--home", str(home)]) == 1
    assert "--force" in capsys.readouterr().err
    assert (home / "cluster.yaml").read_text() == "port: 1"
    assert main(["init", "--home", str(home), "--force"]) == 0
    assert main(["check-config", str(home)]) == 0


def test_check_config_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("listen:\n  prot: 1\n")
    assert main(["check-config", str(file)]) == 1
    assert f"{file}:2:3: listen.prot: unknown key" in capsys.readouterr().err
    assert main(["check-config", str(file), "-o", "json"]) == 1
    [problem] = json.loads(capsys.readouterr().out)
    assert (problem["line"], problem["column"], problem["key"]) == (2, 3, "listen.prot")
    file.write_text("{}")
    assert main(["check-config", str(file), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_invalid_file_prevents_startup(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("listen: {prot: 1}\nretention: {days: x}\n")
    command = [sys.executable, "-m", "paicluster", "serve", "--home", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert result.returncode == 1
    assert "has 2 problems" in result.stderr and "cluster.yaml:1:10" in result.stderr
    assert not (tmp_path / "cluster.db").exists()


def test_serve_requires_home_or_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", str(tmp_path / "none")]) == 1
    command = [sys.executable, "-m", "paicluster", "serve"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert result.returncode == 2
    assert "--home" in result.stderr


def test_unknown_account_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cluster.yaml").write_text("accounts: {alice: root, bob: no-such-account, carol: 1001}")
    assert main(["check-config", str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert "is valid" in output.out
    assert output.err == "Note: there is no account no-such-account on this machine, for user bob.\n"


def test_unknown_engine_is_reported_besides_other_errors(tmp_path: Path) -> None:
    output = problems(
        tmp_path,
        """\
engines:
  - {type: process, cpu: 3}
  - {type: slurm, name: big}
virtual-clusters:
  lab: {engine: bgi, gpu: 1}
  other: {engine: big}
""",
    )
    assert len(output) == 3 and output[1].endswith('there is no engine "bgi"; did you mean "big"?'), output
    # What they are called must be known for that.
    output = problems(tmp_path, "engine: {type: proces}\nvirtual-clusters: {lab: {engine: process}}")
    assert len(output) == 1
