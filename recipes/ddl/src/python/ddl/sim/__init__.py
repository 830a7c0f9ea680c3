"""`ddl-sim`: allreduce on a cluster that there is no machine for, by calculation."""
