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

#ifndef HOROVOD_DDL_OPERATIONS_H
#define HOROVOD_DDL_OPERATIONS_H

#include <ddl/ddl.h>

#include "../ddl/ddl_types.h"
#include "collective_operations.h"

namespace horovod {
namespace common {

// Each operation is enabled for CPU tensors, and where it reduces, for the
// element types that the library knows; what it leaves, the MPI operation of
// the same name takes.

class DDLAllreduce : public AllreduceOp {
 public:
  explicit DDLAllreduce(HorovodGlobalState* global_state);

  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;

  bool Enabled(const ParameterManager& param_manager, const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;
};

class DDLAllgather : public AllgatherOp {
 public:
  explicit DDLAllgather(HorovodGlobalState* global_state);

  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;

  bool Enabled(const ParameterManager& param_manager, const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;

 private:
  // `counts` and `displacements` in bytes, one per rank. A null `send` means
  // that this rank's block is in its place in `recv`.
  void Gather(ProcessSet& process_set, const void* send, void* recv,
              const std::vector<size_t>& counts, const std::vector<size_t>& displacements) const;
};

class DDLBroadcast : public BroadcastOp {
 public:
  explicit DDLBroadcast(HorovodGlobalState* global_state);

  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;

  bool Enabled(const ParameterManager& param_manager, const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;
};

class DDLAlltoall : public AlltoallOp {
 public:
  explicit DDLAlltoall(HorovodGlobalState* global_state);

  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;

  bool Enabled(const ParameterManager& param_manager, const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;
};

// Only where every rank gets the same number of elements.
class DDLReducescatter : public ReducescatterOp {
 public:
  explicit DDLReducescatter(HorovodGlobalState* global_state);

  Status Execute(std::vector<TensorTableEntry>& entries, const Response& response) override;

  bool Enabled(const ParameterManager& param_manager, const std::vector<TensorTableEntry>& entries,
               const Response& response) const override;
};

}  // namespace common
}  // namespace horovod

#endif  // HOROVOD_DDL_OPERATIONS_H
