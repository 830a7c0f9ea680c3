"""Examples of training on several ranks, and a CNN benchmark.

Start an example as `ddlrun -H localhost:4 python -m ddl_ce_examples.keras_ddl`; the others are
`keras_horovod`, `keras_distribute`, `torch_ddp`, `torch_horovod`, `torch_lms`, and
`torch_checkpoint FOLDER`. The benchmark is the program `ddl-cnn-benchmark`.
"""

__version__ = "0.1.0"
