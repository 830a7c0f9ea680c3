# Sourced by both build scripts: the wheel into the work folder, its licences where
# `about.license_file` looks for them.
set -euo pipefail
cd "$SRC_DIR"
python3 -m zipfile -e mpich-*.whl wheel
mv wheel/mpich-*.dist-info/licenses licenses
