// DDL's C++ interface under its documented name, which Horovod and older programs include.
#ifndef DDL_HPP
#define DDL_HPP

#include <ddl/ddl.h>

// DDL's short form: a float sum in place over all ranks.
inline DDL_Result ddl_allreduce(void* buffer, size_t count) {
  return ddl_allreduce(buffer, count, DDL_TYPE_FLOAT, DDL_OP_SUM);
}

#endif
