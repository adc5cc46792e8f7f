"""``paddlecloud submit``: upload a package and start it as a job."""

from __future__ import annotations

import os

from openpaisdk.output import print_notice
from openpaisdk.output.untrusted_text import printable
from openpaisdk.paddlecloud.connection import open_datacenter
from openpaisdk.paddlecloud.flags import Flag, FlagCommand, at_least
from openpaisdk.paddlecloud.pfs_path import base_name, check_pfs, datacenter_of, is_pfs
from openpaisdk.paddlecloud.progress_step import ProgressStep
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.paddlecloud.flags import Arguments
    from openpaisdk.paddlecloud.local_tree import LocalTree

DEFAULT_NAME = "paddle-job"
DEFAULT_ENTRY = "paddle train"
DEFAULT_MEMORY = "1Gi"
SAME_AS_PARALLELISM = -1
MAX_NAME_CHARACTERS = 50
"""Workers' names append a role and an index, and must fit into the 63 characters of a host name."""
_MEMORY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def _memory(text: str) -> str:
    digits = text.rstrip("KMGTPEi")
    if (
        not digits.isdecimal()
        or not digits.isascii()
        or not int(digits)
        or text[len(digits) :] not in _MEMORY_SUFFIXES
    ):
        raise UsageError(
            f"{text!r} is no amount of memory: write a whole number and Ki, Mi, Gi, Ti, Pi or Ei, as in 10Gi."
        )
    return text


def _job_name(text: str) -> str:
    if "." in text or "_" in text:
        raise UsageError(f"a job name cannot contain '.' or '_', as {text!r} does; use '-'.")
    is_plain = text.isascii() and text.replace("-", "a").isalnum()
    if not is_plain or text[0] == "-" or text[-1] == "-" or len(text) > MAX_NAME_CHARACTERS:
        raise UsageError(
            f"{text!r} cannot be a job name: use at most {MAX_NAME_CHARACTERS} letters, digits and '-', "
            "with a letter or digit at both ends."
        )
    return text


SUBMIT = FlagCommand(
    "submit",
    "<package path>",
    "submit a job",
    "paddlecloud submit ./job_word_emb -p 4 -c 2 -m 10Gi -t modules/train.py\n"
    'paddlecloud submit -jobname word-emb -entry "python train.py" -pservers 2 ./job_word_emb',
    Flag("jobname", f"the job's name (default: {DEFAULT_NAME} and a suffix)", "NAME", read=_job_name),
    Flag("parallelism p", "number of trainers (default: 1)", "N", default=1, read=at_least(1)),
    Flag("cpu c", "processors of each trainer (default: 1)", "N", default=1, read=at_least(1)),
    Flag("gpu g", "GPUs of each trainer (default: 0)", "N", default=0, read=at_least(0)),
    Flag("memory m", "memory of each trainer (default: 1Gi)", "SIZE", default=DEFAULT_MEMORY, read=_memory),
    Flag(
        "pservers",
        "number of parameter servers (default: as many as trainers)",
        "N",
        default=SAME_AS_PARALLELISM,
        read=at_least(0),
    ),
    Flag("pscpu", "processors of each parameter server (default: 1)", "N", default=1, read=at_least(1)),
    Flag("psmemory", "its memory (default: 1Gi)", "SIZE", default=DEFAULT_MEMORY, read=_memory),
    Flag("entry e", f"the command of a trainer (default: {DEFAULT_ENTRY})", "COMMAND", default=DEFAULT_ENTRY),
    Flag("topology t", "a .py file with the configuration of a v1 job", "FILE"),
    Flag("passes", "number of passes of a v1 job (default: 1)", "N", default=1, read=at_least(1)),
    Flag("image", "the image to run in (default: the cluster's)", "IMAGE"),
    Flag("registry", "the stored login for the image's registry", "NAME"),
    Flag("faulttolerant", "let trainers come and go, with a master that knows what is done"),
    Flag(
        "min_instance",
        "least number of trainers of a fault-tolerant job, for servers that adapt it (default: 1)",
        "N",
        default=1,
        read=at_least(1),
    ),
    Flag("max_instance", "greatest number of them (default: 1)", "N", default=1, read=at_least(1)),
    count=(1, 1),
    details="""\
The package is a folder with the training program and what it needs. It is uploaded to the folder of its
name in your home in the cloud, or with -jobname to jobs/NAME there; one that begins with /pfs/ is there.
The job runs the package as it is now, from its own folder in job-packages there. Its outputs go to both.""",
)


def submit(argv: list[str]) -> int:
    """``paddlecloud submit [options] <package path>``"""
    args = SUBMIT.parse(argv)
    package = args.positional[0]
    if args.number("min_instance") > args.number("max_instance"):
        raise SUBMIT.error("-min_instance is greater than -max_instance")
    if args.is_set("faulttolerant") and args.text("topology") and args.text("entry") == DEFAULT_ENTRY:
        raise SUBMIT.error("-faulttolerant needs -entry: a topology is for trainers that do not change")
    if is_pfs(package):
        datacenter = datacenter_of([package], args.text("datacenter"))
    else:
        datacenter = args.text("datacenter")
        _check_folder(package)
    tree = None if is_pfs(package) else _collect(package)
    client = open_datacenter(datacenter, print_notice)
    if tree is None:
        target = check_pfs(package)
    else:
        if args.text("jobname"):
            client.check_name(args.text("jobname"))
        folder = base_name(os.path.abspath(package))
        target = f"{client.home}/{'jobs/' + args.text('jobname') if args.text('jobname') else folder}"
        from openpaisdk.paddlecloud.tree_upload import TreeUpload

        try:
            with ProgressStep("Uploading package") as step:
                step.progress.total = tree.size
                TreeUpload(client).put_tree(tree, target, step.progress)
        except KeyboardInterrupt:
            print_notice("Interrupted. Nothing was submitted; the same command continues the upload.")
            raise
    with ProgressStep("Starting kuberntes job"):  # spelt as PaddleCloud spells it
        job = _job(args, target, client.datacenter)
        if client.shares_machine:
            from openpaisdk.jobs.command_job import caller_environment

            job["environment"] = caller_environment()
        name, warnings = client.submit(job, is_named=bool(args.text("jobname")))
    if warnings:
        print_notice(f"The datacenter {client.datacenter} says: {printable('; '.join(warnings))}")
    print_notice(f"The job's name is {printable(name)}.")
    return 0


def _check_folder(package: str) -> None:
    if not os.path.exists(package):
        raise UsageError(
            f"The package {package} does not exist.", hint="Name the folder with your training program."
        )
    if not os.path.isdir(package):
        raise UsageError(
            f"The package {package} is not a folder.", hint="Put your program into a folder and submit that."
        )


def _collect(package: str) -> LocalTree:
    from openpaisdk.paddlecloud.local_tree import collect_folder

    with ProgressStep("Collecting package"):
        tree = collect_folder(package, use_ignore_files=True)
        if not tree.files:
            raise UsageError(f"The package {package} contains no files.", hint="Nothing was submitted.")
    if tree.skipped:
        print_notice(f"Left out of the package: {tree.skipped}")
    return tree


def _job(args: Arguments, package: str, datacenter: str) -> dict[str, object]:
    """The job as it is sent: with the names of the design document, or those of PaddleCloud's client."""
    parallelism, pservers = args.number("parallelism"), args.number("pservers")
    is_named = bool(args.text("jobname"))
    return {
        "name": args.text("jobname") or DEFAULT_NAME,
        "jobPackage" if is_named else "job_package": package,
        "parallelism": parallelism,
        "cpu": args.number("cpu"),
        "gpu": args.number("gpu"),
        "memory": args.text("memory"),
        "pservers": parallelism if pservers == SAME_AS_PARALLELISM else pservers,
        "pscpu": args.number("pscpu"),
        "psmemory": args.text("psmemory"),
        "entry": args.text("entry"),
        "topology": args.text("topology"),
        "datacenter": datacenter,
        "passes": args.number("passes"),
        "image": args.text("image"),
        "registry": args.text("registry"),
        "faulttolerant": args.is_set("faulttolerant"),
        "maxInstance": args.number("max_instance"),
        "minInstance": args.number("min_instance"),
    }
