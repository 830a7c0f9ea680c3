"""`ddlce` itself, handed over alone: a wheel, and one file that any Python of its version runs.

`python -m ddlce.dist DIR` writes both. `wheel.py` and `zipapp.py` make them, the same bytes from
the same tree and .venv; `start.py` is what the second one runs first.
"""
