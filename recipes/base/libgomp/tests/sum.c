#include <omp.h>
#include <stdio.h>

int main(void) {
  int sum = 0;
  int threads = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int i = 1; i <= 1000; ++i) sum += i;
#pragma omp parallel
#pragma omp single
  threads = omp_get_num_threads();
  printf("%d by %d threads\n", sum, threads);
  return sum == 500500 && threads == 2 ? 0 : 1;
}
