// Reductions of XLA's element types, of which ddl knows six.
#pragma once

#include <ddl/ddl.h>
#include <mpi.h>

#include <cstddef>
#include <functional>

namespace ddl_jax {

// A reduction that ddl carries out: `count` elements come out.
using Carry = std::function<DDL_Result(const void* send, void* recv, std::size_t count,
                                       DDL_Type type, DDL_Op op)>;

// Reduces `n_in` elements to `n_out` by `carry`; an MPI error code. An integer that ddl lacks
// travels as a wider one, or with its order turned into that of signed numbers.
int reduce(const char* function, const void* send, void* recv, std::size_t n_in, std::size_t n_out,
           MPI_Datatype type, MPI_Op op, const Carry& carry);

// Whether it is the product of complex numbers, which no reduction of ddl's gives.
bool is_complex_product(MPI_Datatype type, MPI_Op op);

// product[i] *= factor[i]: complex numbers of `type`.
void multiply(void* product, const void* factor, std::size_t count, MPI_Datatype type);
std::size_t size_of(MPI_Datatype type);

}  // namespace ddl_jax
