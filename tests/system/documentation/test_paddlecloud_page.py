"""docs/paddlecloud.md: its files are read, and its tables are complete and name tests that exist."""

import re
from pathlib import Path

import pytest

from openpaisdk.paddlecloud.commands import ALIASES, ENTRY_POINTS, command_of
from openpaisdk.paddlecloud.datacenters import DatacenterConfig
from openpaisdk.paddlecloud.flags import COMMON_FLAGS
from paicluster.api.routes import PADDLECLOUD_ROUTES
from support.paths import REPOSITORY, TESTS

PAGE = (REPOSITORY / "docs/paddlecloud.md").read_text()


@pytest.mark.parametrize("number", range(3))
def test_each_form_of_the_configuration_is_read(number: int, tmp_path: Path, monkeypatch) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".paddle").mkdir()
    (tmp_path / ".paddle/config").write_text(blocks[number])
    found = DatacenterConfig.load().select()
    assert found is not None
    assert found.name == ("datacenter1", "datacenter1", "datacenter2")[number]


# -- the tables of commands, options and routes ------------------------------------------------------------

ROW = re.compile(r"^\| (.+) \| (`[\w/]+\.py::.+`) \|$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
OPTION = re.compile(r"(?<![\w-])-([a-z_]+)")
ROUTE = re.compile(r"(GET|POST|DELETE) (/\S+)")
# What the design document has: options by command, resources of `get`, routes.
DESIGN_OPTIONS = {
    "submit": "parallelism p cpu c gpu memory m pservers pscpu psmemory entry topology t",
    "kill": "rm",
    "get": "a",
    "jobs": "",
    "logs": "n",
    "pfs cp": "r",
    "pfs ls": "",
    "pfs rm": "",
}
DESIGN_RESOURCES = {"jobs", "workers", "quota"}
DESIGN_ROUTES = {
    ("POST", "/api/v1/jobs"),
    ("GET", "/api/v1/jobs"),
    ("GET", "/api/v1/quota"),
    ("POST", "/v1/submit"),
}
# The options of the Go client's log, which do nothing, stand before the command.
BEFORE_COMMAND = {"v", "logtostderr"}
COMMANDS = (*ENTRY_POINTS, *ALIASES)


class TableRow:
    """A row: the commands with their options, and the routes, that its tests show."""

    def __init__(self, what: str, shown_by: str):
        self.what = what
        self.tests = re.findall(r"`([\w/]+\.py)::(\w+)`", shown_by)
        self.options: list[tuple[str, str]] = []
        self.commands: list[str] = []
        self.resources: list[str] = []
        codes = CODE.findall(what)
        self.routes = [found.groups() for code in codes if (found := ROUTE.fullmatch(code))]
        command = ""
        for code in codes:
            command = next((name for name in COMMANDS if re.match(rf"{name}(?![\w/])", code)), command)
            if command and code.startswith(command):
                self.commands.append(command)
                if command == "get":
                    self.resources += [word for word in code.split()[1:] if not word.startswith("-")]
            self.options += [(command, option) for option in OPTION.findall(code)]


ROWS = [TableRow(*found) for found in ROW.findall(PAGE)]


def options_of(command: str) -> set[str]:
    return {name for flag in command_of(ALIASES.get(command, command)).flags for name in flag.names}


def test_tests_of_the_tables_exist_and_use_the_options() -> None:
    assert len(ROWS) > 40
    for row in ROWS:
        assert row.tests, row.what
        texts = {file: (TESTS / file).read_text() for file, _ in row.tests}
        for file, test in row.tests:
            assert re.search(rf"^def {test}\(", texts[file], re.MULTILINE), (file, test)
        text = "".join(texts.values())
        for _, option in row.options:
            assert re.search(rf"[\"' ]--?{option}[\"'= ]", text), (row.what, option)


def test_commands_options_and_routes_of_the_tables_exist() -> None:
    routes = {(method, route.path) for route in PADDLECLOUD_ROUTES for method in route.methods}
    common = {name for flag in COMMON_FLAGS for name in flag.names} | BEFORE_COMMAND
    for row in ROWS:
        for command, option in row.options:
            assert option in (options_of(command) if command else common), (row.what, option)
        assert set(row.routes) <= routes, row.what
        assert set(row.resources) <= {"jobs", "workers", "quota", "registry"}, row.what


def test_tables_have_the_whole_design_document() -> None:
    options = {pair for row in ROWS for pair in row.options}
    commands = {command for row in ROWS for command in row.commands}
    assert set(DESIGN_OPTIONS) <= commands
    for command, names in DESIGN_OPTIONS.items():
        assert {(command, name) for name in names.split()} <= options, command
    assert {resource for row in ROWS for resource in row.resources} >= DESIGN_RESOURCES
    assert {route for row in ROWS for route in row.routes} >= DESIGN_ROUTES
    files = {
        (method, route.path)
        for route in PADDLECLOUD_ROUTES
        for method in route.methods
        if "/pfs/" in route.path
    }
    assert files <= {route for row in ROWS for route in row.routes}, "`/api/v1/pfs/*` of the design document"


def test_tables_have_every_command_and_option() -> None:
    options = {pair for row in ROWS for pair in row.options}
    commands = {command for row in ROWS for command in row.commands}
    assert set(COMMANDS) <= commands
    common = {name for flag in COMMON_FLAGS for name in flag.names}
    assert {("", name) for name in common} <= options
    for command in ENTRY_POINTS:
        assert {(command, name) for name in options_of(command) - common} <= options, command
