"""Benchmarks: our figures against the machine's own limit or a peer, measured in the same run, in one table.

`python -m bench` runs everything; `python -m bench jobs cli` runs the named parts. With `PAI_BENCH_SMOKE=1`
every part runs once with tiny sizes: that checks the benchmarks, the figures mean nothing.
"""
