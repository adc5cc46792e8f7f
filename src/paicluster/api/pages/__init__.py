"""Pages for people: plain HTML without a script, so that nothing a job printed could become one."""
