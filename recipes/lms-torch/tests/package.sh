# The installed package on the device simulator: the same bits as in-core, below the limit.
set -euo pipefail
cd tests # the engine runs a copy of this script above it

python smoke.py
