"""The smoke suite of DDL-CE: shows that an environment works, and how well.

Run it as `ddlce-smoke` inside an environment; run the training example as
`ddlrun -H localhost:4 python -m ddl_ce_smoke.train`.
"""

__version__ = "0.1.0"
