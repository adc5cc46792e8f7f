"""Commands about jobs that were submitted: lists, states, logs, outputs, stopping."""
