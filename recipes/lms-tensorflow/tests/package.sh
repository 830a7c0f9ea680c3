# The installed package: a fit under a limit, swapped between two logical CPU devices, gives what it
# gives without. `make test` runs all of these tests.
set -euo pipefail
cd tests # the engine runs a copy of this script above it

python package.py
