// For bindings that are built with the library, such as ddl._core: above all the collectives by
// name, so that a new one needs no change there. Programs use ddl.h, whose functions stay as they
// are.
#pragma once

#include <ddl/ddl.h>

extern "C" {

// Arguments that the collective does not have are ignored.
DDL_API DDL_Result ddl_run_by_name(const char* name, ddl_comm_t comm, const void* send, void* recv,
                                   size_t count, DDL_Type type, DDL_Op op, int root);
DDL_API DDL_Result ddl_start_by_name(const char* name, ddl_comm_t comm, const void* send,
                                     void* recv, size_t count, DDL_Type type, DDL_Op op, int root,
                                     ddl_request_t* request);

// Whether this process was forked from the one in which the library runs. All that it may do is to
// ask where it is; at its exit nothing is to be ended.
DDL_API int ddl_is_forked(void);
}
