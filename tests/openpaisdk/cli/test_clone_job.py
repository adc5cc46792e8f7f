"""`pai clone-job`: submit a changed copy of a job."""

import pytest
import yaml

from support.cli_user import done_job
from support.team_cluster import MACHINE, TeamCluster, add_users


def test_clone_job_submits_a_changed_copy(user) -> None:
    user.write(data="content")
    one = user.pai("sub", "--mem", "32m", "--wait", "-j", "copyme_$", "cat data").out.strip()
    (user.project / "data").unlink()
    done = user.pai("clone-job", one, "-f")
    assert (done.status, done.out) == (0, "content"), done
    done = user.pai(
        "resubmit", one, "-j", "other_$", "-u", "taskRoles:main:commands:0=wc -c < data", "--follow"
    )
    assert (done.status, done.out.strip()) == (0, "7") and "Job other_" in done.err, done
    job = yaml.safe_load(user.pai("clone-job", one, "--preview", "--vc", "default").out)
    assert job["name"].startswith("copyme_") and job["name"] != one
    assert job["defaults"]["virtualCluster"] == "default"


def test_clone_has_its_own_output_folder(user) -> None:
    one = done_job(user, "kept_$", "-w", "/tmp/space", "echo 1 > $PAI_OUTPUT_DIR/r")
    job = yaml.safe_load(user.pai("clone-job", one, "-j", "next", "--preview").out)
    assert job["parameters"] == {"work_directory": "/tmp/space/jobs/next"}


def test_clone_needs_secrets_again(user) -> None:
    one = done_job(user, "hidden_$", "--secret", "KEY=hush", "--env", "A=1", "test $KEY = hush")
    done = user.pai("clone-job", one)
    assert done.status == 2 and "--secret KEY=..." in done.err, done
    done = user.pai("clone-job", one, "--secret", "KEY=hush", "--wait")
    assert done.status == 0, done
    done = user.pai("clone-job", one, "--secret", "KEY", "--wait", env={"KEY": "wrong"})
    assert done.status == 3, done


DEPLOYED = """\
protocolVersion: 2
name: deployed_$
type: job
prerequisites: [{name: img, type: dockerimage, uri: host}]
taskRoles:
  main:
    dockerImage: img
    resourcePerInstance: {cpu: 1, memoryMB: 32, gpu: 0}
    commands: [echo $WHERE]
deployments:
- {name: test, taskRoles: {main: {preCommands: [export WHERE=test]}}}
- {name: prod, taskRoles: {main: {preCommands: [export WHERE=prod]}}}
defaults: {deployment: test}
"""


def test_clone_can_use_another_deployment(user) -> None:
    user.write(job__yaml=DEPLOYED)
    one = user.pai("submit", "--wait", "job.yaml").out.strip()
    assert user.pai("clone-job", one, "-f", "--deployment", "prod").out == "prod\n"
    done = user.pai("clone-job", one, "--deployment", "none")
    assert done.status == 2 and "it has test, prod" in done.err, done


@pytest.mark.slow
def test_clone_of_another_users_job_says_that_its_sources_belong_to_that_user(new_user, tmp_path) -> None:
    add_users(tmp_path / "home")
    team = TeamCluster(tmp_path / "home", MACHINE)
    try:
        team.start()
        url = f"http://{team.address[0]}:{team.address[1]}"
        for name in ("alice", "bob"):
            words = ["-a", name, "--pai-uri", url, "--user", name, "--token", team.log_in(name)]
            assert new_user.pai("add-cluster", *words).status == 0
            team.tokens[name] = words[-1]
        team.tokens["admin"] = team.log_in("admin")
        new_user.write(data="content")
        assert (
            new_user.pai("sub", "-a", "bob", "--wait", "--sources", "data", "-j", "hers", "cat data").status
            == 0
        )
        for words in (["hers", "--user", "bob"], ["bob~hers"]):
            done = new_user.pai("clone-job", "-a", "alice", *words)
            assert done.status != 0, done
            assert f"The sources of job {words[0]} belong to bob: a copy cannot use them." in done.err, done
            assert "Ask bob for the files, and submit them with pai sub." in done.err, done
        assert new_user.pai("clone-job", "-a", "bob", "hers", "--follow").out == "content"
        assert new_user.pai("sub", "-a", "bob", "--no-sources", "--wait", "-j", "bare", "true").status == 0
        assert new_user.pai("clone-job", "-a", "alice", "bare", "--user", "bob", "--wait").status == 0
    finally:
        team.close()
