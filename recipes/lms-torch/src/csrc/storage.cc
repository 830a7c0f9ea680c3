// The number of references to a storage, for a torch that does not tell it:
// torch._C._storage_Use_Count is part of CUDA's bindings in torch 2.6.
#include <c10/core/StorageImpl.h>
#include <pybind11/pybind11.h>

#include <cstdint>

PYBIND11_MODULE(_storage, module) {
  module.doc() = "The number of references to a storage.";
  module.def(
      "use_count",
      [](uintptr_t storage) {
        return c10::raw::weak_intrusive_ptr::use_count(
            reinterpret_cast<c10::StorageImpl*>(storage));
      },
      "Strong references to the storage at an address (`StorageWeakRef.cdata`).");
}
