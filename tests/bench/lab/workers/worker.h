/* What every worker of the lab does around its library's allreduce: fill, time, check, report.
 *
 *   WORKER BYTES ITERATIONS SECONDS COUNTERS FOLDER
 *
 * sums BYTES of float32 in place, once to warm up and then up to ITERATIONS times, or three when
 * that takes longer than SECONDS. Each time: fill, barrier, one call under the clock, check of
 * every element. The file COUNTERS (byte counters of the switches) is copied to FOLDER/begin and
 * FOLDER/end around the timed calls. Rank 0 prints one line of JSON:
 *   times      of each call, the maximum over the ranks, in seconds
 *   wrong      elements that were not the exact sum, over all ranks and calls
 *   cpu        processor seconds of all ranks inside the timed calls
 *   hosts      the host that each rank is on
 *   library    what MPI and the library say they are
 */
#ifndef LAB_WORKER_H
#define LAB_WORKER_H

#include <dirent.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* A prime, so that a block at a wrong place is seen. */
#define PERIOD 509
#define NAME 32

/* Sums `count` floats over all ranks, in place; does not return on an error. */
typedef void (*Allreduce)(float* data, size_t count);

/* Puts all threads of the process before other load of the machine (SCHED_RR), which then hardly
 * moves the times, or back (SCHED_OTHER). Not for start and end: libraries that spin there would
 * keep each other from the processors. Without the right to it, nothing changes. */
static void schedule(int policy) {
  const struct sched_param parameters = {.sched_priority = policy == SCHED_RR};
  DIR* threads = opendir("/proc/self/task");
  for (struct dirent* entry; threads && (entry = readdir(threads));)
    if (atoi(entry->d_name) > 0) sched_setscheduler(atoi(entry->d_name), policy, &parameters);
  if (threads) closedir(threads);
}

static double cpu_seconds(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
         1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* A small integer, other for each rank, position and call: the sum is exact, and a result of the
 * call before is not taken for this one's. */
static float element(int rank, size_t position, int call) {
  return (float)((position % PERIOD * (size_t)(rank + 1) + (size_t)call) % 32);
}

static void copy(const char* from, const char* folder, const char* name) {
  char path[4096], block[65536];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE* in = fopen(from, "r");
  FILE* out = fopen(path, "w");
  if (!in || !out) {
    perror(in ? path : from);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  size_t got;
  while ((got = fread(block, 1, sizeof block, in)) > 0) fwrite(block, 1, got, out);
  fclose(in);
  fclose(out);
}

static long count_wrong(const float* data, size_t count, int size, int call) {
  float expected[PERIOD] = {0};
  for (int rank = 0; rank < size; ++rank)
    for (size_t i = 0; i < PERIOD; ++i) expected[i] += element(rank, i, call);
  long wrong = 0;
  for (size_t i = 0; i < count; ++i) wrong += data[i] != expected[i % PERIOD];
  return wrong;
}

/* The worker, between the library's start and end. */
static void measure(char** arguments, const char* library, Allreduce allreduce) {
  const size_t count = strtoull(arguments[1], NULL, 10) / sizeof(float);
  const int most = atoi(arguments[2]);
  const double limit = atof(arguments[3]);
  int rank, size, calls = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  float* data = malloc(count * sizeof *data);
  double* times = calloc(most + 1, sizeof *times);
  double cpu = 0, total = 0;
  long wrong = 0;
  schedule(SCHED_RR);
  for (int more = 1; more; ++calls) {
    for (size_t i = 0; i < count; ++i) data[i] = element(rank, i, calls);
    MPI_Barrier(MPI_COMM_WORLD);
    if (calls == 1 && rank == 0) copy(arguments[4], arguments[5], "begin");
    if (calls == 1) MPI_Barrier(MPI_COMM_WORLD);
    const double before = cpu_seconds(), start = MPI_Wtime();
    allreduce(data, count);
    times[calls] = MPI_Wtime() - start;
    if (calls > 0) cpu += cpu_seconds() - before;
    wrong += count_wrong(data, count, size, calls);
    total += times[calls];
    more = calls < most && (calls < 3 || total < limit);
    MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) copy(arguments[4], arguments[5], "end");
  schedule(SCHED_OTHER);
  void* root = rank == 0 ? MPI_IN_PLACE : NULL;
  MPI_Reduce(root ? root : times, times, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(root ? root : &cpu, &cpu, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Reduce(root ? root : &wrong, &wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  char* names = calloc(size, NAME);
  char name[NAME] = "";
  gethostname(name, NAME - 1);
  MPI_Gather(name, NAME, MPI_CHAR, names, NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("{\"times\": [");
    for (int i = 1; i < calls; ++i) printf("%s%.9f", i > 1 ? ", " : "", times[i]);
    printf("], \"hosts\": [");
    for (int i = 0; i < size; ++i) printf("%s\"%s\"", i ? ", " : "", names + i * NAME);
    printf("], \"wrong\": %ld, \"cpu\": %.6f, \"library\": \"%s\"}\n", wrong, cpu, library);
    fflush(stdout);
  }
  free(names);
  free(times);
  free(data);
}

#endif
