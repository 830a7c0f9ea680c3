/* MPI's own allreduce, in place; compiled with the compiler wrapper of each MPI. */
#include "host.h"

static void allreduce(float* data, size_t count) {
  MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  char library[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(library, &length);
  library[strcspn(library, "\n\"")] = '\0';
  if (strcmp(argv[1], "host") == 0)
    measure_on_host(argc, argv, library, allreduce);
  else
    measure(argv, library, allreduce);
  return MPI_Finalize();
}
