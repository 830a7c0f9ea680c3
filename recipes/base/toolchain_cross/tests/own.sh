# usage: own.sh gcc|gxx PLATFORM: the tests of linux-64's compilers, with the values of a target
set -euo pipefail
tool=$1 platform=$2
. ./rows.sh
run=("qemu-$machine-static" -L "$CONDA_PREFIX/$triple/gcc/$triple")
case "$tool" in
  gcc) bash shared/gcc_own.sh "$platform" "$triple" "$elf" "${run[@]}" ;;
  gxx) bash shared/gxx.sh "$platform" "${run[@]}" ;;
esac
