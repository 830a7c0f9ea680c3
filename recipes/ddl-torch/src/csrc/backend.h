// The backend `ddl` of torch.distributed: tensors over ddl's communicators.
#pragma once

#include <ddl/ddl.h>

#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "api.h"
#include "serial_queue.h"
#include "strands.h"
#include "tensors.h"
#include "timeouts.h"

namespace ddl_torch {

// One process group. Its collectives run in order on one queue. Sends and receives run beside them,
// in order for each peer, tag and direction, since a send may wait for the receive behind it.
class DdlBackend : public c10d::Backend {
 public:
  // `world_ranks`: the ranks of the group in ddl's numbering, in the group's order. Collective over
  // them. Needs ddl_init.
  DdlBackend(int rank, std::vector<int> world_ranks, const std::string& group_id,
             std::chrono::milliseconds timeout);
  ~DdlBackend() override;

  const std::string getBackendName() const override { return "ddl"; }
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override;

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  // Rank 0 names the first rank that did not arrive in time, or all of them; the others fail, too.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;

  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& output_split,
                        std::vector<std::int64_t>& input_split,
                        const c10d::AllToAllOptions& options) override;

  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  void startCoalescing() override;
  WorkPtr endCoalescing() override;

#if DDL_TORCH_AT_LEAST_2_13
  // A copy: torch writes a new group's name and timeout into it when it splits this one.
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return c10::make_intrusive<Options>(*options_);
  }
  void setTimeout(std::chrono::milliseconds timeout) override;

  // `ranks` are this group's; nullptr for a rank that is not among them.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override;

  // Ends after all given operations are done. Later operations are refused.
  void shutdown() override;
  // Like shutdown, but operations fail: those under way at their next look at the time.
  void abort() override;
#endif

  // For a process that exits without shutdown: tells the others, which would wait for it, by a
  // barrier that they do not answer. Returns the error's sentence, or "".
  std::string leave(std::chrono::milliseconds timeout);

 private:
  using Body = std::function<void()>;

  using OperationPtr = c10::intrusive_ptr<OperationWork>;
  // `device`: of the tensors; not given, of the outputs.
  OperationPtr make_work(c10d::OpType type, const char* title, std::chrono::milliseconds timeout,
                         c10::IValue outputs, Body body,
                         std::optional<c10::Device> device = std::nullopt);
  WorkPtr given(OperationPtr work);  // for the coalescing manager, if there is one
  WorkPtr run(c10d::OpType type, const char* title, std::chrono::milliseconds timeout,
              c10::IValue outputs, Body body, std::optional<c10::Device> device = std::nullopt);
  WorkPtr run_all(c10d::OpType type, const char* title, std::chrono::milliseconds timeout,
                  c10::IValue outputs, std::vector<Body> bodies);
  WorkPtr send(const at::Tensor& tensor, int peer, int tag, std::chrono::milliseconds timeout);
  WorkPtr recv(const at::Tensor& tensor, int peer, int tag, std::chrono::milliseconds timeout);
  int next_monitored_tag();
  WorkPtr run_message(const Strands::Key& key, OperationPtr work);
  struct Threads {
    std::shared_ptr<SerialQueue> collectives;  // null once the group is destroyed
    std::shared_ptr<Strands> messages;
  };
  Threads threads();
  Threads threads_for(const char* title);  // refuses when the group is destroyed
  void close();

  // The bodies that several operations share; they return a body for the queue.
  Body allreduce_body(const char* what, const at::Tensor& tensor, const c10d::ReduceOp& op);
  Body allgather_body(const char* what, const at::Tensor& output, const at::Tensor& input);
  Body allgather_list_body(const char* what, const Tensors& outputs, const at::Tensor& input);
  Body reduce_scatter_body(const char* what, const at::Tensor& output, const at::Tensor& input,
                           const c10d::ReduceOp& op);

  std::string name_;
  c10::intrusive_ptr<Options> options_;
  ddl_comm_t comm_ = nullptr;
  std::shared_ptr<CompletionPool> completions_;
  std::shared_ptr<Timeouts> timeouts_ = std::make_shared<Timeouts>();
  std::mutex mutex_;  // of what follows
  std::uint64_t sequence_ = 0;
  std::uint64_t num_monitored_ = 0;
  Threads threads_;
  std::optional<std::vector<c10::intrusive_ptr<OperationWork>>> coalesced_;
};

// Lets all living backends leave; returns the first error's sentence, or "".
std::string leave_all(std::chrono::milliseconds timeout);

}  // namespace ddl_torch
