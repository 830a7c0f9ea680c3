# usage: finish.sh MINOR INTERPRETER MACHINE: what is done to an installed python, before its packing
# MINOR: 3.11 or 3.13. INTERPRETER: one of the same version that runs here. MACHINE: of config-3.x-.
set -euo pipefail
minor=$1 interpreter=$2
lib=$PREFIX/lib/python$minor

ln -s "python$minor" "$PREFIX/bin/python"
ln -s "python$minor-config" "$PREFIX/bin/python-config"
"$STRIP" --strip-unneeded "$lib"/lib-dynload/*.so "$PREFIX/lib/libpython$minor.so.1.0"
"$STRIP" "$PREFIX/bin/python$minor"

# What python remembers of its own making is what it compiles extensions with. On the user's
# machine that is the gcc on PATH, and the folders of this build do not exist.
config=$lib/config-$minor-$3
files=("$lib"/_sysconfigdata_*.py "$config/Makefile" "$config/python-config.py"
  "$PREFIX/bin/python$minor-config" "$PREFIX/lib/pkgconfig/python-$minor"*.pc)
programs=$(dirname "$(command -v install)")  # of this machine, in the build folder
sed -i -E \
  -e "s#-ffile-prefix-map=[^ '\"]*##g" \
  -e "s#$programs/##g" -e "s#$SRC_DIR#.#g" -e "s#$BUILD_PREFIX#/usr#g" \
  -e "s#(^|[^a-z0-9_./-])($HOST-)?(gcc|g\+\+)(-[0-9]+)?([ '\"]|\$)#\1\3\5#g" \
  -e "s#(^|[^a-z0-9_./-])($HOST-)?(ar|ranlib|readelf)([ '\"]|\$)#\1\3\4#g" "${files[@]}"
if grep -l -e "$SRC_DIR" -e "$BUILD_PREFIX" "${files[@]}"; then
  echo "python: the files above name the build's folders" >&2
  exit 1
fi
# Python broke these lines by the length of names that stand there no more: those of the build's folders.
"$interpreter" -I -B - "$lib"/_sysconfigdata_*.py << 'END'
import pprint
import sys
from pathlib import Path

for path in map(Path, sys.argv[1:]):
    names: dict[str, dict[str, object]] = {}
    text = path.read_text()
    exec(text, names)
    head = text[: text.index("build_time_vars")]
    path.write_text(f"{head}build_time_vars = {pprint.pformat(names['build_time_vars'])}\n")
END

# Byte code that is never checked against its source's time (packages have none), the same in
# every build, and without the prefix, so that it is linked into environments, not rewritten:
# rewriting would corrupt it. -B, or the compiler's own imports would be written another way.
find "$lib" -name __pycache__ -prune -exec rm -r {} +
export PYTHONHASHSEED=0
"$interpreter" -I -B -m compileall -q -j1 -s "$PREFIX" \
  -x "/(_sysconfigdata_|config-${minor/./\\.}-)" --invalidation-mode unchecked-hash "$lib"
if grep -rlF --include='*.pyc' "$PREFIX" "$lib"; then
  echo "python: the byte code above holds the prefix" >&2
  exit 1
fi
