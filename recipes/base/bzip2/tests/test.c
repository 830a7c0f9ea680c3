/* Compresses and restores a buffer through the shared library. */
#include <bzlib.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  char in[4096], packed[8192], out[4096];
  unsigned packed_size = sizeof packed, out_size = sizeof out;
  for (size_t i = 0; i < sizeof in; ++i) in[i] = (char)(i * i >> 3);
  if (BZ2_bzBuffToBuffCompress(packed, &packed_size, in, sizeof in, 9, 0, 0) != BZ_OK) return 1;
  if (BZ2_bzBuffToBuffDecompress(out, &out_size, packed, packed_size, 0, 0) != BZ_OK) return 2;
  if (out_size != sizeof in || memcmp(in, out, sizeof in) != 0) return 3;
  printf("bzip2 %s: %zu -> %u bytes\n", BZ2_bzlibVersion(), sizeof in, packed_size);
  return 0;
}
