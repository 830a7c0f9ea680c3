/* What every worker does on one host: many sizes in one run, and many calls of the small ones.
 *
 *   WORKER host SECONDS BYTES...
 *
 * For each of BYTES: one call that is checked, then batches of calls in place, up to SECONDS. Rank
 * 0 prints one line of JSON for each size: bytes, wrong (elements, of all ranks), library, batches
 * (of each when it began and ended, by CLOCK_MONOTONIC, and the slowest rank's seconds per call)
 */
#ifndef LAB_HOST_H
#define LAB_HOST_H

#include <time.h>

#include "worker.h"

enum { MOST_BATCHES = 200 };

typedef struct {
  double begin, end; /* rank 0's */
  double call;
} Batch;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

static Batch run_batch(float* data, size_t count, int calls, Allreduce allreduce) {
  memset(data, 0, count * sizeof *data);
  MPI_Barrier(MPI_COMM_WORLD);
  Batch batch = {.begin = now()};
  for (int i = 0; i < calls; ++i) allreduce(data, count);
  batch.end = now();
  batch.call = (batch.end - batch.begin) / calls;
  MPI_Allreduce(MPI_IN_PLACE, &batch.call, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return batch;
}

static void measure_size(size_t bytes, double seconds, const char* library, Allreduce allreduce) {
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const size_t count = bytes / sizeof(float);
  float* data = malloc(bytes);
  for (size_t i = 0; i < count; ++i) data[i] = element(rank, i, 0);
  allreduce(data, count);
  long wrong = count_wrong(data, count, size, 0);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);

  /* A batch of some milliseconds is long against the clock's and the barrier's uncertainty; where a
   * call takes longer than that, one of 40 against the 1 to 2 ms in which the caches write back
   * what filling the buffer has left in them. */
  Batch found[MOST_BATCHES];
  const double once = run_batch(data, count, 3, allreduce).call;
  const double least = once < 2e-3 ? 2e-3 : 40e-3;
  const int calls = once < least ? (int)(least / once) + 1 : 1;
  int batches = 0;
  for (double spent = 0; batches < 5 || (spent < seconds && batches < MOST_BATCHES); ++batches) {
    found[batches] = run_batch(data, count, calls, allreduce);
    spent += found[batches].call * calls; /* the same on all ranks */
  }
  if (rank == 0) {
    printf("{\"bytes\": %zu, \"wrong\": %ld, \"library\": \"%s\", \"batches\": [", bytes, wrong,
           library);
    for (int i = 0; i < batches; ++i)
      printf("%s[%.6f, %.6f, %.9f]", i ? ", " : "", found[i].begin, found[i].end, found[i].call);
    printf("]}\n");
    fflush(stdout);
  }
  free(data);
}

static void measure_on_host(int argc, char** argv, const char* library, Allreduce allreduce) {
  int size;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  /* Libraries that spin would keep each other from too few processors. */
  if (size <= sysconf(_SC_NPROCESSORS_ONLN)) schedule(SCHED_RR);
  for (int i = 3; i < argc; ++i)
    measure_size(strtoull(argv[i], NULL, 10), atof(argv[2]), library, allreduce);
  schedule(SCHED_OTHER);
}

#endif
