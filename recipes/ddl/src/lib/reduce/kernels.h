// Element-wise reduction of several arrays into one, vectorised for the machine at hand.
#pragma once

#include <ddl/ddl.h>

#include <cstddef>

namespace ddl {

// out[i] = in[0][i] op in[1][i] op … in[n_in-1][i], in this order, then divided by `divisor` (1:
// not). `out` may be one of the inputs. Integers ignore the divisor. 16-bit floats are summed in
// float32 and rounded once.
using ReduceFunction = void (*)(void* out, const void* const* in, int n_in, std::size_t count,
                                double divisor);

// memcpy, or one that keeps `out` out of the caches: for results that are not read again soon.
using CopyFunction = void (*)(void* out, const void* in, std::size_t nbytes);

constexpr int kNumTypes = 0
#define DDL_ELEMENT_TYPE(type, name, nbytes, element, nccl) +1
#include "base/element_types.def"
#undef DDL_ELEMENT_TYPE
    ;

struct KernelTable {
  const char* name;
  ReduceFunction reduce[kNumTypes][4];  // [type][op]; an average is a sum with a divisor
  CopyFunction copy;
  CopyFunction copy_streaming;
};

const KernelTable& generic_kernels();
const KernelTable* avx512_kernels();  // null when this processor or build has none
const KernelTable* avx2_kernels();    // likewise
const KernelTable* power9_kernels();  // likewise
const KernelTable* bf16_kernels();    // likewise
const KernelTable* sve_kernels();     // likewise
const KernelTable& kernels();         // the best for this processor

// memcpy, whatever the C library makes of it: on AMD's processors those before glibc 2.39 use "rep
// movsb" from 4 KiB on, which takes many times as long for some alignments (glibc's bug 30994).
inline void copy_bytes(void* out, const void* in, std::size_t nbytes) {
  kernels().copy(out, in, nbytes);
}

// The copy for a result of `nbytes` in all. A result beyond the caches' size is not worth caching.
// In place, the caches have its lines already.
CopyFunction copy_function(std::size_t nbytes, bool is_in_place);

// Call this before another thread may read the data of streaming copies, since no flag is ordered
// after them. Once is enough for all of them, and each call waits until they are in memory.
void end_copies();

ReduceFunction reduce_function(DDL_Type type, DDL_Op op);

}  // namespace ddl
