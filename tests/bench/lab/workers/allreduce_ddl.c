/* libddl's allreduce, in place. MPI is only the clock's barrier. */
#include <ddl/ddl.h>

#include "host.h"

static void must(DDL_Result result) {
  if (result != DDL_SUCCESS) ddl_abort(1, ddl_last_error());
}

static void allreduce(float* data, size_t count) {
  must(ddl_comm_allreduce(DDL_COMM_WORLD, data, data, count, DDL_TYPE_FLOAT, DDL_OP_SUM));
}

int main(int argc, char** argv) {
  if (ddl_init(NULL) != DDL_SUCCESS) {
    fprintf(stderr, "%s\n", ddl_last_error());
    return 1;
  }
  char library[64];
  snprintf(library, sizeof library, "ddl %s", ddl_version());
  if (strcmp(argv[1], "host") == 0)
    measure_on_host(argc, argv, library, allreduce);
  else
    measure(argv, library, allreduce);
  must(ddl_finalize());
  return 0;
}
