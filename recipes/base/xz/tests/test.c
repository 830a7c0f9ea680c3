/* Compresses and restores a buffer through the shared library. */
#include <lzma.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  uint8_t in[4096], packed[8192], out[4096];
  size_t packed_size = 0, read = 0, out_size = 0;
  uint64_t limit = UINT64_MAX;
  for (size_t i = 0; i < sizeof in; ++i) in[i] = (uint8_t)(i * i >> 3);
  if (lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, in, sizeof in, packed, &packed_size,
                              sizeof packed) != LZMA_OK)
    return 1;
  if (lzma_stream_buffer_decode(&limit, 0, NULL, packed, &read, packed_size, out, &out_size,
                                sizeof out) != LZMA_OK)
    return 2;
  if (out_size != sizeof in || memcmp(in, out, sizeof in) != 0) return 3;
  printf("liblzma %s: %zu -> %zu bytes\n", lzma_version_string(), sizeof in, packed_size);
  return 0;
}
