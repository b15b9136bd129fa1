"""Benchmarks: Cutaway beside raw torch hooks, nnsight and TransformerLens, taking turns in one process.

`python -m benchmarks` measures and writes `docs/performance.md`, its figures and `benchmarks/results.json`;
`make bench` does so in an environment of its own that holds the peers. A workload is one file of `workloads/`, with
the same work written for each library; their results are compared before anything is timed.
"""
