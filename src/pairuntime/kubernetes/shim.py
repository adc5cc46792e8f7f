"""Shim: the shell script that is the first process of the user's container, and its protocol.

Named pipes in the exchange carry everything: the commands of the runtime (`CONTROL`), what the shim and the
shell say (`STATUS`), and the output of the task. A pipe has a bounded size: a task whose output is read too
slowly waits, as with any pipe.

- The shim says `HELLO`, and waits for `START`: no command runs before the whole gang has its nodes.
- The script of the task says `STARTED` as its first act. What comes before it on `STATUS`, and is none of
  these words, are errors of the shell: then the command could not be started.
- `EXIT` is followed by the exit status, as a shell shows it. The shim stays until `END` is sent.
- `TERM` and `KILL` are for all processes of the container but the first one. `CHECK` asks if there are any.
- The end of `CONTROL`, without `END`, means that the runtime is gone: the shim kills everything, and ends.

The end of the first process ends all others of its container: no process of a task outlives its attempt.
"""

CONTROL = "control"
STATUS = "status"
OUTPUTS = ("stdout", "stderr")
# Scripts that the runtime writes: the environment and the start, and the user's commands.
RUN = "run.sh"
TASK = "task.sh"

START, TERM, KILL, CHECK, END = b"start", b"term", b"kill", b"check", b"end"
HELLO, STARTED, EXIT, BUSY, EMPTY = b"hello", b"started", b"exit", b"busy", b"empty"

# With nothing but what POSIX has inside the shell; `sleep` is used where the image has it. The runtime
# container may come up later than this one. The first process of a namespace ignores signals that it has no
# trap for: the kubelet's SIGTERM is for the runtime, which decides.
SCRIPT = """\
p=$1
until [ -p "$p/status" ]; do sleep 0.05 2>/dev/null || sleep 1 2>/dev/null || :; done
exec 3<"$p/control" 4>"$p/status"
echo hello >&4
read -r verb <&3 && [ "$verb" = start ] || exit 125
{
  while read -r verb <&3; do
    case $verb in
      term) kill -TERM -1; kill -CONT -1;;
      kill) kill -KILL -1;;
      check) if kill -0 -1; then echo busy >&4; else echo empty >&4; fi;;
      end) break;;
    esac
  done
  kill -KILL -1
} 2>/dev/null &
/bin/sh "$p/run.sh" "$p" </dev/null 3<&- 5>"$p/stderr" >"$p/stdout" 2>&4
code=$?
echo "exit $code" >&4
wait
exit "$code"
"""

# Written by the task's shell before anything else of the user. Until then errors go to the runtime.
PROLOGUE = "exec 2>&5 5>&-\necho started >&4\nexec 4>&-\n"
"""First lines of `TASK`."""

# Kubernetes sets these in every container: they are none of the task's business.
FOREIGN_VARIABLES = (
    "KUBERNETES_PORT",
    "KUBERNETES_PORT_443_TCP",
    "KUBERNETES_PORT_443_TCP_ADDR",
    "KUBERNETES_PORT_443_TCP_PORT",
    "KUBERNETES_PORT_443_TCP_PROTO",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "KUBERNETES_SERVICE_PORT_HTTPS",
)


def run_script(exports: "str", work: "str") -> "str":
    """Text of `RUN`: environment, working folder, then the task's script in bash where the image has it."""
    return (
        "p=$1\nunset %s\n" % " ".join(FOREIGN_VARIABLES)
        + exports
        + "cd %s || exit 126\n" % work
        + 'if [ -x /bin/bash ]; then exec /bin/bash "$p/%s"; fi\nexec /bin/sh "$p/%s"\n' % (TASK, TASK)
    )
