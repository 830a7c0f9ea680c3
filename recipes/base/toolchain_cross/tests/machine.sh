# usage: machine.sh gcc|gxx PLATFORM: the compilers of a machine of the platform, or cross ones
set -euo pipefail
tool=$1 platform=$2 run=()
. ./rows.sh
if [ "$(uname -m)" != "$machine" ]; then run=("qemu-$machine-static" -L "/usr/$triple"); fi
case "$tool" in
  gcc) bash tests/gcc_machine.sh "$platform" "$triple" "$elf" "${run[@]}" ;;
  gxx) bash shared/gxx.sh "$platform" "${run[@]}" ;;
esac
