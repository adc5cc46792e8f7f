"""What the server knows of itself: counts and times of requests, how its loop is. Imports nothing of ours."""
