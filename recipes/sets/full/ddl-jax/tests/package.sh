# The installed package: every case on 2 ranks; `make test-full` runs them on 1 and on 4 too.
set -euo pipefail
cd tests # the engine runs a copy of this script above it

results=$(mktemp -d)
ddlrun -H localhost:2 -timeout 540 python cases.py "$results"
rm -r "$results"
