// ddl_mpi.hpp: allreduce in MPI's own terms, for programs that speak MPI.
#include <ddl_mpi.hpp>
#include <memory>

#include "api/context.h"
#include "base/guard.h"
#include "collective/run.h"

namespace ddl {
namespace {

DDL_Type type_of(MPI_Datatype type) {
  if (type == MPI_FLOAT) return DDL_TYPE_FLOAT;
  if (type == MPI_DOUBLE) return DDL_TYPE_DOUBLE;
  if (type == MPI_INT || type == MPI_INT32_T) return DDL_TYPE_INT32;
  if (type == MPI_INT64_T || type == MPI_LONG_LONG || type == MPI_LONG) return DDL_TYPE_INT64;
  fail(DDL_ERROR_ARGUMENT,
       "ddl_allreduce_mpi: unknown MPI type; use MPI_FLOAT, MPI_DOUBLE, MPI_INT, MPI_INT32_T, "
       "MPI_INT64_T, MPI_LONG or MPI_LONG_LONG");
}

DDL_Op op_of(MPI_Op op) {
  if (op == MPI_SUM) return DDL_OP_SUM;
  if (op == MPI_PROD) return DDL_OP_PRODUCT;
  if (op == MPI_MIN) return DDL_OP_MIN;
  if (op == MPI_MAX) return DDL_OP_MAX;
  fail(DDL_ERROR_ARGUMENT,
       "ddl_allreduce_mpi: unknown MPI operation; use MPI_SUM, MPI_PROD, MPI_MIN or MPI_MAX");
}

static_assert(sizeof(long) == 8, "MPI_LONG is taken for int64");

// What an MPI communicator of the program has as its attribute. It may outlive the library's state,
// which another start makes anew.
struct Standing {
  std::weak_ptr<Context> context;
  Comm* comm;  // of that context
};

// MPI calls this when the program frees its communicator.
int free_attribute(MPI_Comm, int, void* value, void*) {
  const std::unique_ptr<Standing> standing(static_cast<Standing*>(value));
  const auto context = standing->context.lock();
  if (!context) return MPI_SUCCESS;
  return guard([&] { context->destroy(standing->comm); }) == DDL_SUCCESS ? MPI_SUCCESS
                                                                         : MPI_ERR_OTHER;
}

int attribute_key() {
  static const int key = [] {
    int created = MPI_KEYVAL_INVALID;
    check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_attribute, &created, nullptr),
              "MPI_Comm_create_keyval");
    return created;
  }();
  return key;
}

// The communicator that stands for `comm`, made at its first use and kept as its attribute.
Comm& comm_of(const std::shared_ptr<Context>& context, MPI_Comm comm) {
  if (comm == MPI_COMM_WORLD) return context->world();
  void* value = nullptr;
  int is_found = 0;
  check_mpi(MPI_Comm_get_attr(comm, attribute_key(), &value, &is_found), "MPI_Comm_get_attr");
  const auto* found = static_cast<const Standing*>(value);
  if (is_found && found->context.lock() == context) return *found->comm;
  auto made = std::make_unique<Standing>(Standing{context, context->create(comm)});
  // An old one is freed.
  check_mpi(MPI_Comm_set_attr(comm, attribute_key(), made.get()), "MPI_Comm_set_attr");
  return *made.release()->comm;
}

}  // namespace
}  // namespace ddl

DDL_Result ddl_allreduce_mpi(const char* options, void* buffer, size_t count, MPI_Datatype type,
                             MPI_Op op, MPI_Comm comm) {
  return ddl::guard([&] {
    ddl::start(options);
    const auto context = ddl::context();
    const ddl::Arguments args{buffer, buffer, count, ddl::type_of(type), ddl::op_of(op)};
    // The check does not look at the communicator, and a wrong call must not make one.
    ddl::kAllreduceRow.check("ddl_allreduce_mpi", context->world(), args);
    if (comm == MPI_COMM_NULL) {
      ddl::fail(DDL_ERROR_ARGUMENT, "ddl_allreduce_mpi: the communicator is MPI_COMM_NULL");
    }
    ddl::run(ddl::comm_of(context, comm), ddl::kAllreduceRow, args);
  });
}
