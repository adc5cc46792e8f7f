"""`~/.paddle/config`: the three forms, and which datacenter a command uses."""

import pytest

from openpaisdk.paddlecloud.datacenters import DatacenterConfig
from paiprotocol.errors import ConfigError, UsageError

MAPPING = """
datacenter1:
  username: user
  usercert: /path/to/user.pem
  userkey:  /path/to/user-key.pem
  endpoint: dc1.paddlepaddle.org
datacenter2:
  username: user
  password: secret
  endpoint: dc2.paddlepaddle.org
"""
ACTIVE = """
datacenters:
- {name: dc1, active: false, username: u1, password: p1, endpoint: "http://one:8000"}
- {name: dc2, active: true, username: u2, password: p2, endpoint: "http://two"}
- {name: dc3, active: true, username: u3, password: p3, endpoint: "http://three"}
"""
CURRENT = """
datacenters:
- {name: dc1, username: u1, password: p1, endpoint: "http://one"}
- {name: dc2, username: u2, password: p2, endpoint: "http://two/"}
current-datacenter: dc2
"""


@pytest.fixture(name="load")
def load_fixture(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))

    def load(text: str | None) -> DatacenterConfig:
        (tmp_path / ".paddle").mkdir(exist_ok=True)
        if text is not None:
            (tmp_path / ".paddle" / "config").write_text(text)
        return DatacenterConfig.load()

    return load


def test_mapping_of_the_design_document(load) -> None:
    found = load(MAPPING).select()
    assert (found.name, found.username) == ("datacenter1", "user")
    assert found.certificate == ("/path/to/user.pem", "/path/to/user-key.pem")
    assert found.uri == "https://dc1.paddlepaddle.org"


def test_bare_host_without_a_certificate_is_plain_http(load) -> None:
    assert load(MAPPING).select("datacenter2").uri == "http://dc2.paddlepaddle.org"


def test_first_active_datacenter_is_used(load) -> None:
    found = load(ACTIVE).select()
    assert (found.name, found.username, found.password, found.uri) == ("dc2", "u2", "p2", "http://two")


def test_current_datacenter_is_used(load) -> None:
    assert load(CURRENT).select().name == "dc2"


def test_current_datacenter_also_selects_from_a_mapping(load) -> None:
    assert load(MAPPING + "current-datacenter: datacenter2\n").select().name == "datacenter2"


def test_named_datacenter_precedes_the_current_one(load) -> None:
    assert load(CURRENT).select("dc1").name == "dc1"


def test_list_without_a_selection_means_its_first_item(load) -> None:
    assert load(CURRENT.replace("current-datacenter: dc2", "")).select().name == "dc1"


@pytest.mark.parametrize("text", [None, "", "{}", "datacenters: []"])
def test_without_datacenters_there_is_none(load, text) -> None:
    assert load(text).select() is None
    assert load(text).select("any") is None


def test_home_folder_in_paths_of_certificates(load, tmp_path) -> None:
    text = "dc: {usercert: ~/user.pem, userkey: ~/user-key.pem, endpoint: host}"
    assert load(text).select().certificate == (f"{tmp_path}/user.pem", f"{tmp_path}/user-key.pem")


def test_unknown_datacenter_names_the_known_ones(load) -> None:
    with pytest.raises(UsageError, match="has no datacenter 'dc9'; it has dc1, dc2") as caught:
        load(CURRENT).select("dc9")
    assert caught.value.hint


def test_current_datacenter_that_does_not_exist(load) -> None:
    with pytest.raises(UsageError, match="current-datacenter is 'dc9'"):
        load(CURRENT.replace("current-datacenter: dc2", "current-datacenter: dc9")).select()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a\n", "must map the names"),
        ("dc1: 5\n", "the settings of 'dc1' are not a mapping"),
        ("dc1: {username: u}\n", "the datacenter 'dc1' has no endpoint"),
        ("dc1: {endpoint: h, usercert: /a}\n", "has no userkey"),
        ("dc1: {endpoint: h, userkey: /a}\n", "has no usercert"),
        ("dc1: {endpoint: [a]}\n", "endpoint of 'dc1' must be a text"),
        ("datacenters: {a: b}\n", "datacenters must be a list"),
        ("datacenters: [{endpoint: h}]\n", "item 1 of datacenters has no name"),
        ("a: [\n", "is not valid YAML"),
    ],
)
def test_mistakes_in_the_file_are_sentences(load, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load(text)
