"""A pass under way: a trace, a generation, a scan, or a reading of many values at once, and what can be done in it."""
