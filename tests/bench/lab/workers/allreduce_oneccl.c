/* oneCCL's allreduce, in place; oneccl.cc has the calls, since oneCCL speaks C++ only. */
#include "host.h"

void oneccl_start(char* library, size_t length);
void oneccl_allreduce(float* data, size_t count);
void oneccl_end(void);

int main(int argc, char** argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  char library[256];
  oneccl_start(library, sizeof library);
  if (strcmp(argv[1], "host") == 0)
    measure_on_host(argc, argv, library, oneccl_allreduce);
  else
    measure(argv, library, oneccl_allreduce);
  oneccl_end();
  return MPI_Finalize();
}
