// DDL's documented names from C++: ddl.hpp as Horovod uses it, and ddl_mpi.hpp.
#include <cstdio>
#include <ddl_mpi.hpp>
#include <vector>

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, ddl_last_error()); \
      return 1;                                                                          \
    }                                                                                    \
  } while (0)

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  std::vector<float> data(1000, 1.0F);
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);

  // The library starts by itself here, inside a program that runs MPI.
  CHECK(ddl_allreduce_mpi("", data.data(), data.size(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) ==
        DDL_SUCCESS);
  CHECK(data[999] == static_cast<float>(size));

  // A communicator in reverse order; what the library keeps for it goes with it.
  int rank = 0;
  CHECK(ddl_rank(&rank) == DDL_SUCCESS);
  MPI_Comm reversed = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  for (int i = 0; i < 2; ++i) {
    std::vector<int> values(3, rank);
    CHECK(ddl_allreduce_mpi("", values.data(), 3, MPI_INT, MPI_MAX, reversed) == DDL_SUCCESS);
    CHECK(values[2] == size - 1);
  }
  MPI_Comm_free(&reversed);

  void* buffer = nullptr;
  CHECK(ddl_malloc(&buffer, 64, 4000) == DDL_SUCCESS);
  auto* floats = static_cast<float*>(buffer);
  for (int i = 0; i < 1000; ++i) floats[i] = 2.0F;
  CHECK(ddl_allreduce(floats, 1000) == DDL_SUCCESS);
  CHECK(floats[0] == 2.0F * static_cast<float>(size));
  CHECK(ddl_allreduce(floats, size_t{1000}, DDL_TYPE_FLOAT, DDL_OP_MIN) == DDL_SUCCESS);
  CHECK(ddl_free(buffer) == DDL_SUCCESS);

  CHECK(ddl_finalize() == DDL_SUCCESS);
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (is_finalized) {
    std::fprintf(stderr, "ddl_finalize ended an MPI that it had not begun\n");
    return 1;
  }
  MPI_Finalize();
  return 0;
}
