// An exception through two frames: unwinding is what libgcc_s does.
#include <cstring>
#include <stdexcept>

static void inner(int depth) {
  if (depth == 0) throw std::runtime_error("unwound");
  inner(depth - 1);
}

int main() {
  try {
    inner(5);
  } catch (const std::runtime_error& error) {
    return std::strcmp(error.what(), "unwound") == 0 ? 0 : 2;
  }
  return 1;
}
