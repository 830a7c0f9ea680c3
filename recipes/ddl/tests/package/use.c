/* ddl.h from C: an allreduce with a known sum, and an error that says what it is. */
#include <ddl/ddl.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, ddl_last_error()); \
      return 1;                                                                     \
    }                                                                               \
  } while (0)

enum { kCount = 100000 };
static double send[kCount], recv[kCount];

int main(void) {
  int rank, size;
  CHECK(ddl_rank(&rank) == DDL_ERROR_NOT_INITIALIZED);
  CHECK(ddl_init("") == DDL_SUCCESS);
  CHECK(ddl_rank(&rank) == DDL_SUCCESS && ddl_size(&size) == DDL_SUCCESS);

  for (int i = 0; i < kCount; ++i) send[i] = i + rank;
  CHECK(ddl_comm_allreduce(DDL_COMM_WORLD, send, recv, kCount, DDL_TYPE_DOUBLE, DDL_OP_SUM) ==
        DDL_SUCCESS);
  for (int i = 0; i < kCount; ++i) CHECK(recv[i] == (double)size * i + size * (size - 1) / 2);

  CHECK(ddl_allreduce(send, kCount, (DDL_Type)99, DDL_OP_SUM) == DDL_ERROR_ARGUMENT);
  CHECK(strstr(ddl_last_error(), "99") != NULL);
  CHECK(ddl_finalize() == DDL_SUCCESS);
  return 0;
}
