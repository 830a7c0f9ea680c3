/* Compresses and restores a buffer; the library must be the one the header describes. */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

int main(void) {
  unsigned char in[4096], packed[8192], out[4096];
  uLongf packed_size = sizeof packed, out_size = sizeof out;
  for (size_t i = 0; i < sizeof in; ++i) in[i] = (unsigned char)(i * i >> 3);
  if (strcmp(zlibVersion(), ZLIB_VERSION) != 0) return 1;
  if (compress(packed, &packed_size, in, sizeof in) != Z_OK) return 2;
  if (uncompress(out, &out_size, packed, packed_size) != Z_OK) return 3;
  if (out_size != sizeof in || memcmp(in, out, sizeof in) != 0) return 4;
  printf("zlib %s: %zu -> %lu bytes\n", zlibVersion(), sizeof in, packed_size);
  return 0;
}
