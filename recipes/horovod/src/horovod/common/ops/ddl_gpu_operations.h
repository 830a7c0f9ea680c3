// Copyright DDL-CE contributors.
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.
// ============================================================================

#ifndef HOROVOD_DDL_GPU_OPERATIONS_H
#define HOROVOD_DDL_GPU_OPERATIONS_H

#include "ddl_operations.h"
#include "gpu_operations.h"

namespace horovod {
namespace common {

// Allreduce of GPU tensors by the CUDA variant of the library.
// HOROVOD_GPU_OPERATIONS=NCCL at run time leaves them to NCCL.
class DDLGPUAllreduce : public GPUAllreduce {
 public:
  DDLGPUAllreduce(GPUContext* gpu_context, HorovodGlobalState* global_state);

  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;

  bool Enabled(const ParameterManager& param_manager, const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;

 private:
  bool is_selected_;
};

}  // namespace common
}  // namespace horovod

#endif  // HOROVOD_DDL_GPU_OPERATIONS_H
