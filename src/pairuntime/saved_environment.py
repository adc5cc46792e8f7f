"""Environment that a task has after its preCommands, saved for the sessions in the task.

A shell exports variables to the programs that it starts, and nothing else can read them from it: so the
task's script itself writes them to a folder, of which the engine sets the path. The shell that runs the
script also reads them, because each shell quotes values in its own way.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Sequence

# Where the variables are saved: of the attempt folder, or of a folder that a container shares with it.
FOLDER = "session"
# The files in it.
FILES = ("environment", "complete")
# Has the path of that folder, in tasks whose scripts contain the command.
VARIABLE = "PAI_SESSION_DIR"

# A task must not fail if it cannot be done. The second file says that the first one is complete.
SAVE_COMMAND = (
    '(umask 077; { [ -d "$%(variable)s" ] || mkdir "$%(variable)s"; } && '
    'export -p >"$%(variable)s/environment" && : >"$%(variable)s/complete") 2>/dev/null || :'
) % {"variable": VARIABLE}

# $1: the folder; $2: the type of the session's terminal, or nothing; then the command. A session that starts
# with its task waits a second for the preCommands, which take longer only if they install something.
_ENTER = """
pai_folder=$1 pai_term=$2 pai_round=0
shift 2
until [ -e "$pai_folder/complete" ] || [ "$pai_round" -ge 20 ]; do
  pai_round=$((pai_round + 1))
  sleep 0.05 2>/dev/null || sleep 1
done
if [ -e "$pai_folder/complete" ]; then . "$pai_folder/environment"; fi
if [ -n "$pai_term" ]; then export TERM="$pai_term"; fi
exec "$@"
"""
# bash if the task has it, as for its script.
_IN_SHELL = (
    'if command -v bash >/dev/null 2>&1; then exec bash -c "$0" pai-exec "$@"; fi; '
    'exec sh -c "$0" pai-exec "$@"'
)


def enter(folder: "str", command: "Sequence[str]", *, shell: "str" = "", term: "str" = "") -> "list[str]":
    """Command line that runs a command with the saved environment, where the task runs.

    ``shell``: the one that runs the task's script, if it is known. ``term``: type of the session's terminal.
    """
    start = [shell, "-c", _ENTER, "pai-exec"] if shell else ["/bin/sh", "-c", _IN_SHELL, _ENTER]
    return [*start, folder, term, *command]
