"""Building: the plan's steps, in parallel, each in a process and a staging folder of its own."""
