/* Compresses a buffer and restores it piece by piece through the shared library. */
#include <stdio.h>
#include <string.h>
#include <zstd.h>

int main(void) {
  char in[4096], packed[8192], out[4096];
  for (size_t i = 0; i < sizeof in; ++i) in[i] = (char)(i * i >> 3);
  const size_t size = ZSTD_compress(packed, sizeof packed, in, sizeof in, 3);
  if (ZSTD_isError(size)) return 1;
  ZSTD_DStream* stream = ZSTD_createDStream();
  ZSTD_outBuffer to = {out, sizeof out, 0};
  ZSTD_inBuffer from = {packed, 0, 0};
  while (from.pos < size) {
    from.size = from.pos + 1;
    if (ZSTD_isError(ZSTD_decompressStream(stream, &to, &from))) return 2;
  }
  ZSTD_freeDStream(stream);
  if (to.pos != sizeof in || memcmp(in, out, sizeof in) != 0) return 3;
  printf("libzstd %s: %zu -> %zu bytes\n", ZSTD_versionString(), sizeof in, size);
  return 0;
}
