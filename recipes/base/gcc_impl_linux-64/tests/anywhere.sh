# usage: anywhere.sh gcc|g++: the compiler works in a root that has nothing but the prefix, and in a
# moved prefix; it reads nothing of the machine.
set -euo pipefail
tool=x86_64-conda-linux-gnu-$1
unset LD_RUN_PATH  # builders set it, and the linker reads it

echo 'int answer(void) { return 42; }' > answer.c
echo 'struct A { virtual ~A() {} }; int f() { try { throw A(); } catch (A&) { return 1; } }' > f.cpp
source=answer.c
if [ "$1" = g++ ]; then source=f.cpp; fi

compile() { # PREFIX OUTPUT COMMAND...
  "${@:3}" "$1/bin/$tool" -O2 -fPIC -c "$source" -o "$2"
  "${@:3}" "$1/bin/$tool" -nostdlib -shared "$2" -o "$2.so"
  "${@:3}" "$1/bin/$tool" -flto -O2 -fPIC -nostdlib -shared "$source" -o "$2.lto.so"
}
compile "$CONDA_PREFIX" here.o
# Users' libraries find the environment's without a variable; packages get their RPATH elsewhere.
rpath() { "$CONDA_PREFIX/bin/x86_64-conda-linux-gnu-readelf" -d "$1" | grep -c "R.*PATH.*\[$CONDA_PREFIX/lib\]" || true; }
test "$(rpath here.o.so)" = 1
CONDA_BUILD_STATE=BUILD compile "$CONDA_PREFIX" built.o
test "$(rpath built.o.so)" = 0

# Of the names that others set, none comes through.
mkdir -p others
printf '#!/bin/sh\nexit 9\n' | tee others/as > others/ld
chmod +x others/*
LD_PRELOAD=/nonexistent/preload.so LD_LIBRARY_PATH=/nonexistent GCC_EXEC_PREFIX=/nonexistent/ \
  COMPILER_PATH=$PWD/others DDLCE_PREFIX=/nonexistent compile "$CONDA_PREFIX" variables.o
cmp here.o variables.o
test "$(rpath variables.o.so)" = 1

# In a folder with blanks and other letters, by hard links: no file names the prefix.
moved="$PWD/ein Präfix"
mkdir -p "$moved"
cp -al "$CONDA_PREFIX/bin" "$CONDA_PREFIX/x86_64-conda-linux-gnu" "$moved/"
CONDA_BUILD_STATE=BUILD compile "$moved" moved.o
cmp built.o.so moved.o.so
cmp built.o.lto.so moved.o.lto.so
cmp here.o moved.o

# Where it cannot be, it says so.
for letter in ';' ':' '%' '\' '|'; do
  mkdir wrong
  cp -al "$CONDA_PREFIX/bin" "$CONDA_PREFIX/x86_64-conda-linux-gnu" wrong/
  mv wrong "a${letter}b"
  if said=$("$PWD/a${letter}b/bin/$tool" -c "$source" -o wrong.o 2>&1); then exit 1; fi
  grep -qF "cannot run from a folder with ; : % \ or | in its path: $PWD/a${letter}b" <<< "$said"
  rm -r "a${letter}b"
done

# By a link to a program, and from PATH.
ln -s "$moved/bin/$tool" linked
./linked -c "$source" -o linked.o
PATH="$moved/bin:$PATH" "$tool" -c "$source" -o path.o
cmp linked.o path.o

# Without /proc, it finds itself by its full path.
if bwrap --ro-bind / / true 2> bwrap.said; then
  root=(bwrap --unshare-all --ro-bind "$CONDA_PREFIX" "$CONDA_PREFIX" --bind "$PWD" "$PWD"
    --dir /tmp --dev /dev --chdir "$PWD" --clearenv)
  compile "$CONDA_PREFIX" alone.o "${root[@]}" --
  cmp here.o alone.o
  cmp here.o.lto.so alone.o.lto.so
else
  echo "not tried in a root without anything else: $(cat bwrap.said)"
fi
