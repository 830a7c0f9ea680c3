# usage: compilers.sh FLOOR, in an environment where the compilers are activated: CMake takes them, and
# what it asks them for is in the environment.
set -euo pipefail
floor=$1
sysroot=$CONDA_PREFIX/x86_64-conda-linux-gnu

mkdir -p project
cat > project/CMakeLists.txt << 'CMAKE'
cmake_minimum_required(VERSION 3.18)
project(asked C CXX)
include(CheckSymbolExists)
include(CheckFunctionExists)
list(APPEND CMAKE_REQUIRED_DEFINITIONS -D_GNU_SOURCE)
check_symbol_exists(gettid "unistd.h" DECLARED)
check_function_exists(gettid LINKED)
check_function_exists(close_range LINKED_LATER)
check_symbol_exists(memfd_create "sys/mman.h" OLDER)
find_package(Threads REQUIRED)
add_executable(asked main.c other.cpp)
target_link_libraries(asked Threads::Threads m)
file(WRITE ${CMAKE_BINARY_DIR}/found "${DECLARED}:${LINKED}:${LINKED_LATER}:${OLDER}\n")
foreach(folder ${CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES} ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
  file(APPEND ${CMAKE_BINARY_DIR}/folders "${folder}\n")
endforeach()
CMAKE
echo 'int other(void); int main(void) { return other(); }' > project/main.c
echo '#include <thread>
extern "C" int other(void) { int n = 1; std::thread([&] { n = 0; }).join(); return n; }' \
  > project/other.cpp
cmake -S project -B made > log 2>&1 || { cat log; exit 1; }
cmake --build made --verbose >> log 2>&1 || { cat log; exit 1; }
made/asked
case "$floor" in
  2.28 | 2.29) test "$(cat made/found)" = :::1 ;;
  *) test "$(cat made/found)" = 1:1::1 ;;
esac
grep -q 'CMAKE_C_COMPILER:.*/x86_64-conda-linux-gnu-gcc$' made/CMakeCache.txt
grep -q 'CMAKE_CXX_COMPILER:.*/x86_64-conda-linux-gnu-g++$' made/CMakeCache.txt
if realpath -m $(cat made/folders) | grep -v "^$(realpath "$sysroot")/"; then
  echo "CMake searches the folders above, which are the machine's" >&2
  exit 1
fi
bash floor/low.sh "$floor" made/asked
