# The installed package on 2 ranks: back ends, then every case of PyTorch, TensorFlow and Keras.
set -euo pipefail
cd tests # the engine runs a copy of this script above it

python -m pytest -q -p no:cacheprovider -m "not slow" .
