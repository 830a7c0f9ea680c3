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

#include "ddl_gpu_operations.h"

#include <strings.h>

#include <cstdlib>

#include "../ddl/ddl_context.h"

namespace horovod {
namespace common {

DDLGPUAllreduce::DDLGPUAllreduce(GPUContext* gpu_context, HorovodGlobalState* global_state)
    : GPUAllreduce(gpu_context, global_state) {
  auto selected = std::getenv(HOROVOD_GPU_OPERATIONS);
  is_selected_ = selected == nullptr || strcasecmp(selected, HOROVOD_DDL) == 0;
}

bool DDLGPUAllreduce::Enabled(const ParameterManager& param_manager,
                              const std::vector<TensorTableEntry>& entries,
                              const Response& response) const {
  DDL_Type type;
  return is_selected_ && GPUAllreduce::Enabled(param_manager, entries, response) &&
         GetDDLDataType(entries[0].tensor->dtype(), type);
}

Status DDLGPUAllreduce::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  auto& first_entry = entries[0];
  auto& process_set = global_state_->process_set_table.Get(first_entry.process_set_id);
  auto& timeline = global_state_->timeline;
  auto dtype = first_entry.tensor->dtype();
  DDL_Type type;
  DDL_Op op;
  double postscale_factor;
  GetDDLDataType(dtype, type);
  GetDDLReduction(response, dtype, process_set.controller->GetSize(), op, postscale_factor);

  gpu_op_context_.InitGPU(entries);
  WaitForData(entries);
  auto stream = gpu_context_->streams[global_state_->current_nccl_stream][first_entry.device];

  const void* input;
  void* buffer;
  size_t buffer_len;
  if (entries.size() > 1) {
    MemcpyInFusionBuffer(entries, input, buffer, buffer_len);
  } else {
    input = first_entry.tensor->data();
    buffer = const_cast<void*>(first_entry.output->data());
    buffer_len = (size_t)first_entry.output->size();
  }
  // Batched copies pad each entry, so the buffer may hold more than the
  // elements of the entries.
  auto num_elements = (int64_t)(buffer_len / DataType_Size(dtype));
  if (response.prescale_factor() != 1.0) {
    ScaleBuffer(response.prescale_factor(), entries, input, buffer, num_elements);
    input = buffer;
  }

  // The call comes after what the stream has been given so far, and its result
  // is in place for every stream.
  timeline.ActivityStartAll(entries, DDL_ALLREDUCE);
  CheckDDL(ddl_set_stream(stream), "ddl_set_stream");
  CheckDDL(ddl_comm_allreduce(process_set.ddl_context.Communicator(
                                  process_set.mpi_context.GetMPICommunicator(Communicator::GLOBAL)),
                              input, buffer, (size_t)num_elements, type, op),
           "ddl_comm_allreduce");
  timeline.ActivityEndAll(entries);

  if (postscale_factor != 1.0) {
    ScaleBuffer(postscale_factor, entries, buffer, buffer, num_elements);
  }
  if (entries.size() > 1) {
    MemcpyOutFusionBuffer(buffer, entries);
  }
  gpu_context_->StreamSynchronize(stream);
  return Status::OK();
}

}  // namespace common
}  // namespace horovod
