"""Reading a task's log from a logical offset, and being told when it grows."""
