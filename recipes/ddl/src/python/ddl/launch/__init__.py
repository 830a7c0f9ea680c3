"""The launcher `ddlrun`: starts one program as many ranks on many hosts, over MPICH's mpiexec.

Standard library only, and nothing of the `ddl` extension: a launch host needs no MPI of its own.
"""
