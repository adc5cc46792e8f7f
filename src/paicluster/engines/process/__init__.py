"""Process engine: tasks are processes of this machine, each under a supervisor forked from a zygote."""
