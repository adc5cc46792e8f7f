"""The cluster: accepts jobs, schedules them, runs them, and loses none. Linux; embedded or for a team."""
