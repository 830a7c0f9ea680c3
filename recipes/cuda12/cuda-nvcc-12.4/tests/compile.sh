# Its own parts, found from its own place: for a V100.
set -euo pipefail

nvcc=$CONDA_PREFIX/bin/nvcc
"$nvcc" --version | grep 'release 12.4'
touch kernel.cu
"$nvcc" --dryrun -arch=sm_70 -c kernel.cu 2>&1 | grep -F "$CONDA_PREFIX"/bin/../nvvm/libdevice
printf '.version 8.4\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n' > nothing.ptx
"$CONDA_PREFIX/bin/ptxas" -arch=sm_70 -o nothing.cubin nothing.ptx
test -s nothing.cubin
