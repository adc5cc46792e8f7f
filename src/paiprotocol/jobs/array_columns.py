"""Column of an array that is no parameter."""

TASK_INDEX = "PAI_TASK_INDEX"
"""In a job that runs tasks of another one again: their indexes there, which the tasks see."""
