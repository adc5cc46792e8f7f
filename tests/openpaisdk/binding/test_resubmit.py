"""`Job.resubmit`: a changed copy of a job."""

import pytest

from openpaisdk import Job, PaiError


def test_resubmit_submits_a_changed_copy_with_the_files_of_the_job(here) -> None:
    (here / "data").write_text("content")
    job = Job("small_$").one_liner("cat data", mem="32m", env={"A": "1"}).submit()
    assert job.wait() == "SUCCEEDED"
    (here / "data").unlink()
    copy = Job(job.name).resubmit(mem="48m")
    assert (copy.wait(), copy.logs()) == ("SUCCEEDED", "content")
    assert copy.name != job.name
    assert copy.protocol["taskRoles"]["main"]["resourcePerInstance"]["memoryMB"] == 48
    other = job.resubmit("next_$", commands="cat data 2>/dev/null || echo $A $B", env={"B": "2"}, sources=[])
    other.wait()
    assert other.name.startswith("next_") and other.logs() == "1 2\n"


def test_resubmit_names_what_it_does_not_know(here) -> None:
    job = Job("known_$").one_liner("true", mem="32m", sources=[]).submit()
    with pytest.raises(PaiError, match=r"A copy of a job has no option 'gpus'\.") as caught:
        job.resubmit(gpus=8)
    assert "gpu" in caught.value.hint
    with pytest.raises(PaiError, match="There is no job 'nowhere' on the cluster local"):
        Job("nowhere").resubmit(gpu=1)
