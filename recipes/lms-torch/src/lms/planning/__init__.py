"""Planning: the trace of an iteration, and the plan that keeps the next one below the limit."""
