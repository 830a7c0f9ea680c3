# usage: build.sh TEMPLATE TOOL PLATFORM VERSION [NAME=TEXT...]
# Fills the template of activate/ for gcc, gxx or sysroot: @NAME@ becomes the text.
set -euo pipefail

template=$1 tool=$2
given=("PLATFORM=$3" "VERSION=$4" "${@:5}")
activate=$(dirname "${BASH_SOURCE[0]}")/activate

# for TEMPLATE: the template with this platform's values
fill() {
  local text pair
  text=$(<"$activate/$1.sh")
  text=${text//@FLAGS@/$(<"$activate/flags.sh")}
  for pair in "${given[@]}"; do text=${text//"@${pair%%=*}@"/"${pair#*=}"}; done
  if [[ $text =~ @[A-Z_]+@ ]]; then
    echo "toolchain: $1.sh has no text for ${BASH_REMATCH[0]}" >&2
    exit 1
  fi
  echo "$text"
}

mkdir -p "$PREFIX/etc/conda/activate.d" "$PREFIX/etc/conda/deactivate.d"
filled=$(fill "$template")
echo "$filled" > "$PREFIX/etc/conda/activate.d/activate-${tool}_$3.sh"
# The variables that the deactivation restores: those that the activation sets.
names=$(sed -n 's/^ *_ddlce_set \([A-Z_]*\) .*/\1/p' <<< "$filled" | paste -sd' ')
if [ -n "$names" ]; then
  given+=("NAMES=$names")
  filled=$(fill deactivate)
  echo "$filled" > "$PREFIX/etc/conda/deactivate.d/deactivate-${tool}_$3.sh"
fi
