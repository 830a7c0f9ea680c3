#!/bin/bash
# Builds the CUDA variant of ddl on a bare machine with GPUs, an nvcc toolkit and a torch with CUDA,
# but no network; then runs the GPU tests and the benchmark. Usage, in the repository's root:
#   tests/bench/gpu-machine.sh pack FOLDER   here: puts what that machine lacks into FOLDER
#   tests/bench/gpu-machine.sh run FOLDER    there: some five minutes; results in $OUT if it is set
# FOLDER holds mpich's wheel (pinned as for the benchmarks), pytest's, and Debian's libyaml.
set -euo pipefail
verb=$1
folder=$(mkdir -p "$2" && cd "$2" && pwd)
cd "$(dirname "$0")/../.."

if [[ $verb == pack ]]; then
  python3 -m pip download -q --require-hashes --no-deps -d "$folder" \
    -r tests/bench/lab/requirements/mpich.txt
  (cd "$folder" && apt-get download libyaml-dev libyaml-0-2)
  du -sh "$folder"
  exit
fi

venv=/tmp/ddl-gpu
for package in "$folder"/*.deb; do dpkg -x "$package" /tmp/ddl-yaml; done
python3 -m venv --without-pip "$venv"
# The machine's own torch, NCCL, nanobind and pytest, seen from the new environment.
theirs=$(python3 -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parents[1])')
echo "$theirs" >"$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/theirs.pth"
python3 -m pip --python "$venv/bin/python" install -q --no-index --no-deps "$folder"/mpich-*.whl
python=$(command -v python3)
export PATH=$venv/bin:${python%/*}:$PATH
yaml=$(dirname "$(find /tmp/ddl-yaml -name 'libyaml.so' | head -n 1)")
toolkit=${CUDA_HOME:-/usr/local/cuda}
cmake -S recipes/ddl/src -B /tmp/ddl-gpu-build -G Ninja --log-level=WARNING \
  -DCMAKE_INSTALL_PREFIX="$venv" -DCMAKE_INSTALL_LIBDIR=lib -DDDL_CUDA=ON \
  -DMPI_C_COMPILER="$venv/bin/mpicc" -DPython_EXECUTABLE="$venv/bin/python" \
  -DYAML_INCLUDE_DIR=/tmp/ddl-yaml/usr/include -DYAML_LIBRARY="$yaml/libyaml.so" \
  -DCMAKE_PREFIX_PATH="$toolkit;$theirs/nvidia/nccl;$theirs/nvidia/cu13" \
  -DCMAKE_INCLUDE_PATH="$toolkit/include/cccl"
cmake --build /tmp/ddl-gpu-build
cmake --install /tmp/ddl-gpu-build >/tmp/ddl-gpu-install.log
export LD_LIBRARY_PATH=$yaml${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
python -m ddl.info
status=0
python -m pytest -q -rs -p no:cacheprovider recipes/ddl/tests/gpu || status=$?
python tests/bench/bench_gpu.py --out "${OUT:-/tmp}/gpu.json" || status=$?
exit "$status"
