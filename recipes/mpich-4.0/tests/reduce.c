/* Allreduce and a ring of messages, every value checked.
 * Usage: mpiexec -n N reduce N. Exit status 1 if N ranks are not there or a value is wrong. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 100000 /* long enough for the rendezvous protocol */

static int fail(const char *what, int rank) {
  fprintf(stderr, "rank %d: wrong %s\n", rank, what);
  return 1;
}

int main(int argc, char **argv) {
  int rank, size, wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 2 || size != atoi(argv[1])) wrong += fail("number of ranks", rank);

  double *values = (double *)malloc(COUNT * sizeof(double));
  for (int i = 0; i < COUNT; i++) values[i] = rank + i;
  MPI_Allreduce(MPI_IN_PLACE, values, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < COUNT; i++)
    if (values[i] != size * (size - 1) / 2 + (double)size * i) {
      wrong += fail("sum", rank);
      break;
    }
  free(values);

  int token = rank, right = (rank + 1) % size, left = (rank + size - 1) % size;
  MPI_Sendrecv_replace(&token, 1, MPI_INT, right, 0, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (token != left) wrong += fail("token", rank);

  if (rank == 0 && !wrong) printf("%d ranks agree\n", size);
  MPI_Finalize();
  return wrong ? 1 : 0;
}
