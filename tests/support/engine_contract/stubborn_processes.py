"""Shell lines that start processes which are hard to end."""

# A process in its own session that ignores SIGTERM. It prints a line when it does.
DEAF_CHILD = "setsid bash -c 'trap \"\" TERM HUP INT; echo deaf; while :; do sleep 0.05; done' &\n"
# Double-forked into its own session with inherited output, like a daemon.
DAEMON = "(setsid bash -c 'echo daemon up; exec sleep 600' &)\n"
