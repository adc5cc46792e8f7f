"""What prepares and runs the user's commands when Python is needed in the task: nothing yet."""
