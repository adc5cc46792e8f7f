"""docs/compatibility.md: everything it names exists, and everything documented has a row."""

import re

import pytest

from openpaisdk.cli.commands import ALIASES, ENTRY_POINTS
from support.paths import REPOSITORY

PAGE = (REPOSITORY / "docs/compatibility.md").read_text()
ROWS = re.findall(r"^\| (.+?) \| `([\w/.]+)::(\w+)` \|$", PAGE, re.MULTILINE)
DOCUMENTED = """
pai add-cluster, pai list-clusters, pai listdir, pai copy, pai makedir, pai makedirs, pai remove, pai
delete, pai getinfo, pai cluster-resources, pai edit-clusters, pai list-jobs, pai job-status, pai
stop-job, pai stop-jobs, pai submit, pai sub, pai list-storages, pai select-storage, pai delete-cluster,
pai update-clusters, pai add-storage-cluster, pai connect-job, pai select-cluster, pai set, pai unset,
pai update-token, pai notebook-job, --interactive, abcd,
--cluster-alias, --pai-uri, --user, --password, --token, --editor, --storage-name,
--workspace, --type, --address, --path, --update, -u, --cpu, --gpu, --memoryMB, --mem, --ports,
--sources, --src, --pip-installs, --pip, --pip-path, --preview, --python, --image, --vc, --no-browser,
-w, [-g], -a -i -j, cluster-alias, image, workspace, container-sdk-branch, clusters-in-local,
.openpai/debug_enable, resubmit, __version__, __cluster_config_file__, io_utils.from_file,
ClusterList(cfg).available_resources(), ClusterList().load().add(cfg).save(), .delete, .select,
get_client(alias), client.jobs(name), client.rest_api_submit(cfg), rest_api_*, storage.upload, .download,
.list, Job(name), .one_liner, .submit(alias), .wait, .logs, Job.stop, OpenPAIClient(), os.environ,
.login(token), .submit(job), .jobs(), .status(name)
"""
NAMES = [name.strip() for name in DOCUMENTED.replace("\n", " ").split(",") if name.strip()]


@pytest.mark.parametrize("name", NAMES)
def test_everything_documented_has_a_row(name: str) -> None:
    assert any(name in what for what, _, _ in ROWS)


@pytest.mark.parametrize(("path", "test"), sorted({(path, test) for _, path, test in ROWS}))
def test_cited_tests_exist(path: str, test: str) -> None:
    assert f"\ndef {test}(" in (REPOSITORY / "tests" / path).read_text()


def test_missing_features_are_listed_as_missing() -> None:
    later = PAGE.partition("## Not yet")[2].partition("\n## ")[0]
    from openpaisdk import Job

    for name in re.findall(r"`([a-z-]+)`", later):
        assert name not in ENTRY_POINTS and name not in ALIASES, f"{name} is there: give it a row"
    for name in re.findall(r"`Job\.(\w+)`", later):
        assert not hasattr(Job, name), f"Job.{name} is there: give it a row"
