/* How far apart two processors are, all the time: every PERIOD, two threads send a cache line to
 * and fro a few times, before everything else on these processors (where that is allowed). Prints
 * for each time the seconds of CLOCK_MONOTONIC and of one way to and fro, until it is killed. A
 * time when one of the threads is late is left out. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { PERIOD = 4000000, WARM = 4, ROUNDS = 16 }; /* nanoseconds; exchanges */

static const double EXCHANGE_TIMEOUT_S = 1e-4;
static _Alignas(64) atomic_long ball;
static struct timespec start;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* Puts the calling thread on the nth of the processors that it may use, before others. */
static void stay_on(int nth) {
  const struct sched_param first = {.sched_priority = 2};
  cpu_set_t all, one;
  sched_getaffinity(0, sizeof all, &all);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &all) || nth-- > 0) ++cpu;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
  pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);
}

static void sleep_until(long sample) {
  const long nanoseconds = start.tv_nsec + sample * PERIOD;
  const struct timespec time = {start.tv_sec + nanoseconds / 1000000000, nanoseconds % 1000000000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static int has_come(long value) {
  for (double begin = 0; atomic_load_explicit(&ball, memory_order_acquire) != value;) {
    if (begin == 0) begin = now();
    if (now() - begin > EXCHANGE_TIMEOUT_S) return 0;
  }
  return 1;
}

static void* send_back(void* unused) {
  stay_on(1);
  for (long sample = 0;; ++sample) {
    sleep_until(sample);
    const long first = sample * 4 * ROUNDS;
    for (int i = 1; i <= ROUNDS && has_come(first + 2 * i); ++i)
      atomic_store_explicit(&ball, first + 2 * i + 1, memory_order_release);
  }
  return unused;
}

int main(void) {
  cpu_set_t all;
  pthread_t other;
  sched_getaffinity(0, sizeof all, &all);
  clock_gettime(CLOCK_MONOTONIC, &start);
  if (CPU_COUNT(&all) < 2 || pthread_create(&other, NULL, send_back, NULL) != 0) {
    fprintf(stderr, "it takes two processors, and a thread\n");
    return 1;
  }
  stay_on(0);
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  for (long sample = 0;; ++sample) {
    sleep_until(sample);
    const long first = sample * 4 * ROUNDS;
    double begin = 0;
    int i = 1;
    for (; i <= ROUNDS; ++i) {
      if (i == WARM + 1) begin = now();
      atomic_store_explicit(&ball, first + 2 * i, memory_order_release);
      if (!has_come(first + 2 * i + 1)) break;
    }
    const double end = now();
    if (i > ROUNDS) printf("%.6f %.9f\n", end, (end - begin) / (ROUNDS - WARM));
  }
}
