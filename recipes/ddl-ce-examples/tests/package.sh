# The installed package: an example of each framework and the benchmark, on two ranks.
set -euo pipefail

job=(ddlrun -H localhost:2 -timeout 540)
"${job[@]}" python -m ddl_ce_examples.keras_ddl
"${job[@]}" python -m ddl_ce_examples.torch_ddp
"${job[@]}" ddl-cnn-benchmark --model=lenet --num_batches=3 --batch_size=4 --results results.jsonl
ddl-cnn-benchmark --table results.jsonl
