# The installed package: every operation on 1 and on 4 ranks, beside gloo; `make test-full` runs them on 2, too.
set -euo pipefail
cd tests # the engine runs a copy of this script above it

for ranks in 1 4; do
  results=$(mktemp -d)
  ddlrun -H "localhost:$ranks" -timeout 540 python cases.py "$results"
  rm -r "$results"
done
