#include "call.h"

#include "error.h"

namespace ddl {
namespace {

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::kNone:
      return "nothing";
    case Collective::kAllreduce:
      return "allreduce";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kAllgather:
      return "allgather";
    case Collective::kBarrier:
      return "barrier";
    case Collective::kGather:
      return "gather";
    case Collective::kScatter:
      return "scatter";
    case Collective::kAlltoall:
      return "alltoall";
    case Collective::kAlltoallv:
      return "alltoallv";
    case Collective::kFinalize:
      return "finalize";
    case Collective::kIallreduce:
      return "iallreduce";
  }
  return "an unknown collective";
}

bool is_fused(const Call& call) {
  return call.collective == Collective::kAllreduce && call.fusion != 0;
}

}  // namespace

std::size_t size_of(DDL_Type type) {
  switch (type) {
    case DDL_TYPE_HALF:
    case DDL_TYPE_BFLOAT16:
      return 2;
    case DDL_TYPE_FLOAT:
    case DDL_TYPE_INT32:
      return 4;
    case DDL_TYPE_DOUBLE:
    case DDL_TYPE_INT64:
      return 8;
  }
  fail(DDL_ERROR_ARGUMENT, "unknown element type ", static_cast<int>(type),
       "; use one of the DDL_TYPE_ values of ddl.h");
}

std::size_t bytes_of(const Call& call, int ranks) {
  switch (call.collective) {
    case Collective::kAllreduce:
      return call.count * size_of(static_cast<DDL_Type>(call.type));
    case Collective::kReduceScatter:
      return call.count * size_of(static_cast<DDL_Type>(call.type)) * ranks;
    case Collective::kAllgather:
      return call.count * ranks;
    default:
      return call.count;
  }
}

const char* name_of(DDL_Type type) {
  switch (type) {
    case DDL_TYPE_FLOAT:
      return "float32";
    case DDL_TYPE_DOUBLE:
      return "float64";
    case DDL_TYPE_HALF:
      return "float16";
    case DDL_TYPE_BFLOAT16:
      return "bfloat16";
    case DDL_TYPE_INT32:
      return "int32";
    case DDL_TYPE_INT64:
      return "int64";
  }
  return "unknown type";
}

const char* name_of(DDL_Op op) {
  switch (op) {
    case DDL_OP_SUM:
      return "sum";
    case DDL_OP_PRODUCT:
      return "prod";
    case DDL_OP_MIN:
      return "min";
    case DDL_OP_MAX:
      return "max";
    case DDL_OP_AVERAGE:
      return "average";
  }
  return "unknown operation";
}

std::string describe(const Call& call) {
  const char* name = name_of(call.collective);
  const char* where = call.is_on_device ? ", on a GPU" : "";
  switch (call.collective) {
    case Collective::kAllreduce:
    case Collective::kReduceScatter:
    case Collective::kIallreduce:
      return concat(name, "(", call.count, " x ", name_of(static_cast<DDL_Type>(call.type)), ", ",
                    name_of(static_cast<DDL_Op>(call.op)), is_fused(call) ? ", fused" : "", where,
                    ")");
    case Collective::kBroadcast:
    case Collective::kGather:
    case Collective::kScatter:
      return concat(name, "(", call.count, " bytes, root ", call.root, where, ")");
    case Collective::kAllgather:
    case Collective::kAlltoall:
      return concat(name, "(", call.count, " bytes", where, ")");
    default:
      return concat(name, "()");
  }
}

}  // namespace ddl
