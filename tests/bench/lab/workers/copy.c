/* What memory allows: every rank reads its buffer and writes as much, all at the same time, with
 * stores that go past the caches where there are any. No allreduce can do with less. */
#include "host.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

static float* target;

static void copy_all(float* data, size_t count) {
  size_t i = 0;
#if defined(__x86_64__)
  for (; count * sizeof *data >= (4 << 20) && i + 4 <= count; i += 4)
    _mm_stream_ps(target + i, _mm_loadu_ps(data + i));
#endif
  memcpy(target + i, data + i, (count - i) * sizeof *data);
  MPI_Barrier(MPI_COMM_WORLD);
}

/* The check of the first call would see no sum: it gets one. */
static void copy_or_sum(float* data, size_t count) {
  static size_t checked;
  if (checked != count) {
    checked = count;
    free(target);
    target = aligned_alloc(64, (count * sizeof *data + 63) / 64 * 64);
    memset(target, 0, count * sizeof *data);
    MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return;
  }
  copy_all(data, count);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  measure_on_host(argc, argv, "copy", copy_or_sum);
  return MPI_Finalize();
}
