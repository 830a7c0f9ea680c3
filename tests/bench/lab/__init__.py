"""The lab: a shaped cluster of network namespaces on one machine, and the allreduces run in it.

`layout` describes a cluster and an order of ranks, `bound` says how fast it can be at best,
`network` brings it up, `peers` knows how each library is started in it, `cell` runs one of them,
`report` makes the table. `tests/bench/bench_lab.py` is the command.
"""
