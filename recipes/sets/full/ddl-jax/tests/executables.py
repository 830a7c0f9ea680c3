"""Run by ddlrun: a compiled program that is kept in a file, as by one job for the next.

Usage: executables.py save|load FILE all|some; `some` has ranks 0 and 1 reduce, and the others wait.
"""

import pickle
import sys
from pathlib import Path

import ddl.jax as dj
import jax
import jax.numpy as jnp
from jax.experimental.serialize_executable import deserialize_and_load, serialize


def main() -> None:
    way, file, kind = sys.argv[1:]
    x = jnp.ones((6, 50_000))  # too large for a message without a plan
    if dj.rank() < 2 or kind == "all":  # the call starts ddl, without which nothing is loaded
        if way == "save":
            function = (
                dj.reducescatter if kind == "all" else lambda y: dj.allreduce(y, ranks=[0, 1])
            )
            kept = serialize(jax.jit(function).lower(x).compile())
            if dj.rank() == 0:
                Path(file).write_bytes(pickle.dumps(kept))
        else:
            program = deserialize_and_load(*pickle.loads(Path(file).read_bytes()))
            try:
                print("result", float(program(x).sum()) / 50_000, flush=True)
            except jax.errors.JaxRuntimeError as error:
                print("refused:", error, flush=True)
    dj.barrier()


if __name__ == "__main__":
    main()
