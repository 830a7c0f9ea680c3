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

#include "ddl_operations.h"

#include <algorithm>

namespace horovod {
namespace common {

namespace {

ProcessSet& ProcessSetOf(HorovodGlobalState* state, const TensorTableEntry& entry) {
  return state->process_set_table.Get(entry.process_set_id);
}

ddl_comm_t DDLCommunicator(ProcessSet& process_set) {
  return process_set.ddl_context.Communicator(
      process_set.mpi_context.GetMPICommunicator(Communicator::GLOBAL));
}

bool IsOnCPU(const std::vector<TensorTableEntry>& entries) {
  return entries[0].device == CPU_DEVICE_ID;
}

// Elements that each rank receives of a reduce-scatter.
std::vector<int64_t> ReceiveCounts(const std::vector<std::vector<TensorShape>>& output_shapes) {
  std::vector<int64_t> counts;
  for (auto& shapes : output_shapes) {
    counts.push_back(0);
    for (auto& shape : shapes) {
      counts.back() += shape.num_elements();
    }
  }
  return counts;
}

}  // namespace

// Allreduce
DDLAllreduce::DDLAllreduce(HorovodGlobalState* global_state) : AllreduceOp(global_state) {}

bool DDLAllreduce::Enabled(const ParameterManager& param_manager,
                           const std::vector<TensorTableEntry>& entries,
                           const Response& response) const {
  DDL_Type type;
  return IsOnCPU(entries) && GetDDLDataType(entries[0].tensor->dtype(), type);
}

Status DDLAllreduce::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);

  auto& first_entry = entries[0];
  auto& process_set = ProcessSetOf(global_state_, first_entry);
  auto& timeline = global_state_->timeline;
  auto dtype = first_entry.tensor->dtype();
  DDL_Type type;
  DDL_Op op;
  double postscale_factor;
  GetDDLDataType(dtype, type);
  GetDDLReduction(response, dtype, process_set.controller->GetSize(), op, postscale_factor);

  const void* input;
  void* buffer;
  int64_t num_elements = NumElements(entries);
  if (entries.size() > 1) {
    size_t buffer_len;
    timeline.ActivityStartAll(entries, MEMCPY_IN_FUSION_BUFFER);
    MemcpyInFusionBuffer(entries, input, buffer, buffer_len);
    timeline.ActivityEndAll(entries);
  } else {
    input = first_entry.tensor->data();
    buffer = const_cast<void*>(first_entry.output->data());
  }

  if (response.prescale_factor() != 1.0) {
    ScaleBuffer(response.prescale_factor(), entries, input, buffer, num_elements);
    input = buffer;
  }

  timeline.ActivityStartAll(entries, DDL_ALLREDUCE);
  CheckDDL(ddl_comm_allreduce(DDLCommunicator(process_set), input, buffer, (size_t)num_elements,
                              type, op),
           "ddl_comm_allreduce");
  timeline.ActivityEndAll(entries);

  if (postscale_factor != 1.0) {
    ScaleBuffer(postscale_factor, entries, buffer, buffer, num_elements);
  }

  if (entries.size() > 1) {
    timeline.ActivityStartAll(entries, MEMCPY_OUT_FUSION_BUFFER);
    MemcpyOutFusionBuffer(buffer, entries);
    timeline.ActivityEndAll(entries);
  }
  return Status::OK();
}

// Allgather
DDLAllgather::DDLAllgather(HorovodGlobalState* global_state) : AllgatherOp(global_state) {}

bool DDLAllgather::Enabled(const ParameterManager& param_manager,
                           const std::vector<TensorTableEntry>& entries,
                           const Response& response) const {
  return IsOnCPU(entries);
}

Status DDLAllgather::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);

  auto& first_entry = entries[0];
  auto& process_set = ProcessSetOf(global_state_, first_entry);
  auto& timeline = global_state_->timeline;
  int size = process_set.controller->GetSize();
  int element_size = (int)DataType_Size(first_entry.tensor->dtype());

  // Per entry and rank: elements, and where they begin in the joint buffer.
  std::vector<std::vector<int64_t>> entry_sizes(entries.size(), std::vector<int64_t>(size));
  auto entry_offsets = entry_sizes;
  std::vector<int64_t*> sizes_of;
  std::vector<int64_t*> offsets_of;
  for (size_t ec = 0; ec < entries.size(); ++ec) {
    sizes_of.push_back(entry_sizes[ec].data());
    offsets_of.push_back(entry_offsets[ec].data());
  }
  int64_t** sizes = sizes_of.data();
  int64_t** offsets = offsets_of.data();

  timeline.ActivityStartAll(entries, ALLOCATE_OUTPUT);
  Status status = AllocateOutput(entries, response, sizes);
  timeline.ActivityEndAll(entries);
  if (!status.ok()) {
    return status;
  }

  // Not by AllgatherOp's functions, which count in int: a result of one entry
  // may have any number of elements.
  std::vector<int64_t> first_elements(size);
  std::vector<size_t> counts(size);
  std::vector<size_t> displacements(size);
  int64_t begin = 0;
  for (int rank = 0; rank < size; ++rank) {
    first_elements[rank] = begin;
    for (size_t ec = 0; ec < entries.size(); ++ec) {
      entry_offsets[ec][rank] = begin;
      begin += entry_sizes[ec][rank];
    }
    displacements[rank] = (size_t)first_elements[rank] * element_size;
    counts[rank] = (size_t)begin * element_size - displacements[rank];
  }

  const void* send = nullptr;
  void* recv;
  if (entries.size() > 1) {
    // What fits into the fusion buffer.
    std::vector<int> buffer_displacements(first_elements.begin(), first_elements.end());
    timeline.ActivityStartAll(entries, MEMCPY_IN_FUSION_BUFFER);
    MemcpyInFusionBuffer(entries, buffer_displacements.data(), element_size, recv);
    timeline.ActivityEndAll(entries);
  } else {
    send = first_entry.tensor->data();
    recv = const_cast<void*>(first_entry.output->data());
  }

  timeline.ActivityStartAll(entries, DDL_ALLGATHER);
  Gather(process_set, send, recv, counts, displacements);
  timeline.ActivityEndAll(entries);

  if (entries.size() > 1) {
    timeline.ActivityStartAll(entries, MEMCPY_OUT_FUSION_BUFFER);
    MemcpyOutFusionBuffer(offsets, sizes, recv, element_size, entries);
    timeline.ActivityEndAll(entries);
  }
  return Status::OK();
}

void DDLAllgather::Gather(ProcessSet& process_set, const void* send, void* recv,
                          const std::vector<size_t>& counts,
                          const std::vector<size_t>& displacements) const {
  auto comm = DDLCommunicator(process_set);
  int rank = process_set.controller->GetRank();
  auto own_block = static_cast<uint8_t*>(recv) + displacements[rank];
  bool same_counts =
      std::all_of(counts.begin(), counts.end(), [&](size_t n) { return n == counts[0]; });
  if (same_counts) {
    CheckDDL(ddl_comm_allgather(comm, send != nullptr ? send : own_block, recv, counts[0]),
             "ddl_comm_allgather");
    return;
  }
  // Blocks of different sizes: every rank sends its block to each.
  std::vector<uint8_t> copy;
  if (send == nullptr) {
    // The all-to-all exchange cannot read from where it writes.
    copy.assign(own_block, own_block + counts[rank]);
    send = copy.data();
  }
  std::vector<size_t> send_counts(counts.size(), counts[rank]);
  std::vector<size_t> send_offsets(counts.size(), 0);
  CheckDDL(ddl_comm_alltoallv(comm, send, send_counts.data(), send_offsets.data(), recv,
                              counts.data(), displacements.data()),
           "ddl_comm_alltoallv");
}

// Broadcast
DDLBroadcast::DDLBroadcast(HorovodGlobalState* global_state) : BroadcastOp(global_state) {}

bool DDLBroadcast::Enabled(const ParameterManager& param_manager,
                           const std::vector<TensorTableEntry>& entries,
                           const Response& response) const {
  return IsOnCPU(entries);
}

Status DDLBroadcast::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);

  auto& e = entries[0];
  auto& process_set = ProcessSetOf(global_state_, e);
  bool is_root = process_set.controller->GetRank() == e.root_rank;
  auto& data = is_root ? e.tensor : e.output;

  global_state_->timeline.ActivityStartAll(entries, DDL_BCAST);
  CheckDDL(ddl_comm_broadcast(DDLCommunicator(process_set), const_cast<void*>(data->data()),
                              (size_t)e.tensor->size(), e.root_rank),
           "ddl_comm_broadcast");
  global_state_->timeline.ActivityEndAll(entries);
  return Status::OK();
}

// Alltoall
DDLAlltoall::DDLAlltoall(HorovodGlobalState* global_state) : AlltoallOp(global_state) {}

bool DDLAlltoall::Enabled(const ParameterManager& param_manager,
                          const std::vector<TensorTableEntry>& entries,
                          const Response& response) const {
  return IsOnCPU(entries);
}

Status DDLAlltoall::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);

  auto& e = entries[0];
  std::vector<int64_t> sdispls, rdispls, sendcounts, recvcounts;
  Status status = PrepareOutputAndParams(e, sdispls, rdispls, sendcounts, recvcounts);
  if (!status.ok()) {
    return status;
  }
  auto element_size = DataType_Size(e.tensor->dtype());
  auto bytes = [element_size](const std::vector<int64_t>& elements) {
    std::vector<size_t> result;
    for (auto n : elements) {
      result.push_back((size_t)n * element_size);
    }
    return result;
  };

  global_state_->timeline.ActivityStartAll(entries, DDL_ALLTOALL);
  auto& process_set = ProcessSetOf(global_state_, e);
  CheckDDL(
      ddl_comm_alltoallv(DDLCommunicator(process_set), e.tensor->data(), bytes(sendcounts).data(),
                         bytes(sdispls).data(), const_cast<void*>(e.output->data()),
                         bytes(recvcounts).data(), bytes(rdispls).data()),
      "ddl_comm_alltoallv");
  global_state_->timeline.ActivityEndAll(entries);
  return Status::OK();
}

// Reducescatter
DDLReducescatter::DDLReducescatter(HorovodGlobalState* global_state)
    : ReducescatterOp(global_state) {}

bool DDLReducescatter::Enabled(const ParameterManager& param_manager,
                               const std::vector<TensorTableEntry>& entries,
                               const Response& response) const {
  DDL_Type type;
  if (!IsOnCPU(entries) || !GetDDLDataType(entries[0].tensor->dtype(), type)) {
    return false;
  }
  auto& process_set = ProcessSetOf(global_state_, entries[0]);
  auto counts = ReceiveCounts(ComputeOutputShapes(entries, process_set.controller->GetSize()));
  return std::all_of(counts.begin(), counts.end(), [&](int64_t n) { return n == counts[0]; });
}

Status DDLReducescatter::Execute(std::vector<TensorTableEntry>& entries, const Response& response) {
  WaitForData(entries);

  auto& first_entry = entries[0];
  auto& process_set = ProcessSetOf(global_state_, first_entry);
  auto& timeline = global_state_->timeline;
  auto dtype = first_entry.tensor->dtype();
  DDL_Type type;
  GetDDLDataType(dtype, type);
  auto output_shapes = ComputeOutputShapes(entries, process_set.controller->GetSize());
  size_t count = (size_t)ReceiveCounts(output_shapes)[0];

  const void* send = first_entry.tensor->data();
  void* recv = const_cast<void*>(first_entry.output->data());
  if (entries.size() > 1 || response.prescale_factor() != 1.0) {
    void* buffer;
    size_t buffer_len;
    auto element_size = DataType_Size(dtype);
    timeline.ActivityStartAll(entries, MEMCPY_IN_FUSION_BUFFER);
    MemcpyInFusionBuffer(entries, output_shapes, element_size, buffer, buffer_len);
    if (response.prescale_factor() != 1.0) {
      ScaleBuffer(response.prescale_factor(), entries, buffer, buffer,
                  (int64_t)(buffer_len / element_size));
    }
    timeline.ActivityEndAll(entries);
    send = buffer;
    if (entries.size() > 1) {
      // In place: this rank's block within the buffer.
      recv =
          static_cast<uint8_t*>(buffer) + process_set.controller->GetRank() * count * element_size;
    }
  }

  timeline.ActivityStartAll(entries, DDL_REDUCESCATTER);
  // Horovod averages by the postscale factor here.
  CheckDDL(
      ddl_comm_reduce_scatter(DDLCommunicator(process_set), send, recv, count, type, DDL_OP_SUM),
      "ddl_comm_reduce_scatter");
  timeline.ActivityEndAll(entries);

  if (entries.size() > 1) {
    timeline.ActivityStartAll(entries, MEMCPY_OUT_FUSION_BUFFER);
    MemcpyOutFusionBuffer(recv, entries);
    timeline.ActivityEndAll(entries);
  }
  if (response.postscale_factor() != 1.0) {
    for (auto& e : entries) {
      ScaleBuffer(response.postscale_factor(), entries, e.output->data(),
                  const_cast<void*>(e.output->data()), e.output->shape().num_elements());
    }
  }
  return Status::OK();
}

}  // namespace common
}  // namespace horovod
