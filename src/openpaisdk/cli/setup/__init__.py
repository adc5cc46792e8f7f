"""Commands about ``pai`` itself: defaults, diagnosis, completion."""
