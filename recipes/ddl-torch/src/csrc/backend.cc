#include "backend.h"

#include <Python.h>

#include <algorithm>
#include <set>

#include "error.h"
#include "reduction.h"

namespace ddl_torch {
namespace {

using c10d::OpType;
using std::chrono::milliseconds;

struct Registry {
  std::mutex mutex;
  std::set<DdlBackend*> backends;
};

// Never destroyed: a backend may outlive static objects.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

// ddl has one timeout for the process. Groups that wait at the same time with different timeouts
// share the one that was set last.
void use_timeout(milliseconds timeout) {
  const double wanted = std::min(std::chrono::duration<double>(timeout).count(), 1e9);
  double current = 0;
  check(ddl_get_timeout(&current));
  if (current != wanted) check(ddl_set_timeout(wanted));
}

// The members of a new group call with the same name, so their tags agree. Different groups that
// are made at the same time by different threads are told apart unless their names collide.
int tag_of(const std::string& group_id) {
  std::uint32_t hash = 2166136261u;  // FNV-1a: std::hash may differ between hosts
  for (const char c : group_id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return static_cast<int>(hash % 32768);
}

}  // namespace

DdlBackend::DdlBackend(int rank, std::vector<int> world_ranks, const std::string& group_id,
                       milliseconds timeout)
    : c10d::Backend(rank, static_cast<int>(world_ranks.size())),
      options_(c10::make_intrusive<Options>("ddl", timeout)) {
  options_->group_name = group_id;
  options_->global_ranks_in_group.assign(world_ranks.begin(), world_ranks.end());
  use_timeout(timeout);
  check(ddl_comm_create(world_ranks.data(), getSize(), tag_of(group_id), &comm_));
  collectives_ = std::make_unique<Lane>("ddl-collectives");
  init();
  const std::lock_guard<std::mutex> lock(registry().mutex);
  registry().backends.insert(this);
}

DdlBackend::~DdlBackend() {
  {
    const std::lock_guard<std::mutex> lock(registry().mutex);
    registry().backends.erase(this);
  }
  // Python may drop the last reference, and an operation that we wait for may have to call Python.
  const bool has_python = Py_IsInitialized() && PyGILState_Check();
  PyThreadState* const state = has_python ? PyEval_SaveThread() : nullptr;
  close();
  if (has_python) PyEval_RestoreThread(state);
}

void DdlBackend::setTimeout(milliseconds timeout) { options_->timeout = timeout; }

std::uint64_t DdlBackend::getSequenceNumberForGroup() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return sequence_;
}

// -- Running
// ---------------------------------------------------------------------------------------

DdlBackend::WorkPtr DdlBackend::run(Lane& lane, OpType type, const char* title,
                                    milliseconds timeout, c10::IValue outputs, Body body) {
  if (timeout <= milliseconds(0)) timeout = options_->timeout;
  auto timed = [timeout, body = std::move(body)] {
    use_timeout(timeout);
    body();
  };
  std::uint64_t sequence = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    sequence = ++sequence_;
  }
  auto work = c10::make_intrusive<OperationWork>(getRank(), type, sequence, title,
                                                 std::move(outputs), std::move(timed));
  lane.give(work);
  return work;
}

DdlBackend::WorkPtr DdlBackend::run(OpType type, const char* title, milliseconds timeout,
                                    c10::IValue outputs, Body body) {
  Lane* lane = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    lane = collectives_.get();
  }
  if (lane == nullptr) refuse(c10::str(title, ": the process group has been destroyed"));
  return run(*lane, type, title, timeout, std::move(outputs), std::move(body));
}

DdlBackend::WorkPtr DdlBackend::run_all(OpType type, const char* title, milliseconds timeout,
                                        c10::IValue outputs, std::vector<Body> bodies) {
  return run(type, title, timeout, std::move(outputs), [bodies = std::move(bodies)] {
    for (const Body& body : bodies) body();
  });
}

Lane& DdlBackend::peer_lane(bool is_send, int peer, int tag) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!collectives_) refuse("the process group has been destroyed");
  auto& lane = peers_[{is_send, peer, tag}];
  if (!lane) lane = std::make_unique<Lane>(c10::str("ddl-", is_send ? "to-" : "from-", peer));
  return *lane;
}

std::vector<Lane*> DdlBackend::lanes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Lane*> all;
  if (collectives_) all.push_back(collectives_.get());
  for (const auto& [key, lane] : peers_) all.push_back(lane.get());
  return all;
}

void DdlBackend::shutdown() { close(); }

void DdlBackend::abort() {
  for (Lane* lane : lanes()) lane->cancel_waiting("the process group was aborted");
  close();
}

void DdlBackend::close() {
  std::unique_ptr<Lane> collectives;
  decltype(peers_) peers;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    collectives.swap(collectives_);
    peers.swap(peers_);
  }
  if (!collectives) return;
  collectives.reset();  // waits for its end
  peers.clear();
  // Without ddl there is nothing left to free; an error here has nobody to tell.
  if (ddl_initialized()) ddl_comm_free(comm_);
}

std::string DdlBackend::leave(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (Lane* lane : lanes()) {
    if (!lane->drain(deadline)) {
      return c10::str("it exits while ", lane->current(), " waits for other ranks");
    }
  }
  if (lanes().empty()) return "";  // shut down properly
  use_timeout(patience);
  const DDL_Result result = ddl_comm_barrier(comm_);
  const std::string sentence = result == DDL_ERROR_MISMATCH ? ddl_last_error() : "";
  use_timeout(options_->timeout);
  return sentence.empty() ? "" : "it exits while other ranks wait for it: " + sentence;
}

std::string leave_all(std::chrono::milliseconds patience) {
  std::set<DdlBackend*> backends;
  {
    const std::lock_guard<std::mutex> lock(registry().mutex);
    backends = registry().backends;
  }
  for (DdlBackend* backend : backends) {
    std::string problem = backend->leave(patience);
    if (!problem.empty()) return problem;
  }
  return "";
}

// -- Reductions
// ------------------------------------------------------------------------------------

DdlBackend::Body DdlBackend::allreduce_body(const char* what, const at::Tensor& tensor,
                                            const c10d::ReduceOp& op) {
  check_tensor(what, tensor);
  return [comm = comm_, tensor, how = Reduction(what, tensor, op)] {
    const at::Tensor staged = how.stage(tensor);
    check(ddl_comm_allreduce(comm, staged.const_data_ptr(), staged.data_ptr(), staged.numel(),
                             how.ddl_type, how.op));
    how.restore(staged, tensor);
  };
}

DdlBackend::WorkPtr DdlBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  only("all_reduce", tensors);
  return run(OpType::ALLREDUCE, "ddl:all_reduce", options.timeout, tensors,
             allreduce_body("all_reduce", tensors[0], options.reduceOp));
}

DdlBackend::WorkPtr DdlBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  std::vector<Body> bodies;
  for (const at::Tensor& tensor : tensors) {
    bodies.push_back(allreduce_body("all_reduce_coalesced", tensor, options.reduceOp));
  }
  return run_all(OpType::ALLREDUCE_COALESCED, "ddl:all_reduce_coalesced", options.timeout, tensors,
                 std::move(bodies));
}

DdlBackend::WorkPtr DdlBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor tensor = only("reduce", tensors);
  const bool is_root = options.rootRank == getRank();
  Reduction how("reduce", tensor, options.reduceOp);
  return run(OpType::REDUCE, "ddl:reduce", options.timeout, tensors, [=, comm = comm_] {
    const at::Tensor staged = how.stage(tensor);
    const at::Tensor result = is_root ? staged : at::empty_like(staged);
    check(ddl_comm_allreduce(comm, staged.const_data_ptr(), result.data_ptr(), staged.numel(),
                             how.ddl_type, how.op));
    if (is_root) how.restore(staged, tensor);
  });
}

namespace {

void reduce_scatter_now(ddl_comm_t comm, const Reduction& how, const at::Tensor& output,
                        const at::Tensor& input) {
  const at::Tensor from = how.stage(input);
  const at::Tensor to = how.stage_empty(output);
  check(ddl_comm_reduce_scatter(comm, from.const_data_ptr(), to.data_ptr(), to.numel(),
                                how.ddl_type, how.op));
  how.restore(to, output);
}

}  // namespace

DdlBackend::Body DdlBackend::reduce_scatter_body(const char* what, const at::Tensor& output,
                                                 const at::Tensor& input,
                                                 const c10d::ReduceOp& op) {
  check_blocks(what, output, input, getSize());
  return [comm = comm_, output, input, how = Reduction(what, input, op)] {
    reduce_scatter_now(comm, how, output, input);
  };
}

DdlBackend::WorkPtr DdlBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                               const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = only("reduce_scatter", outputs);
  if (inputs.size() != 1 || inputs[0].size() != static_cast<std::size_t>(getSize())) {
    refuse(c10::str("reduce_scatter: needs one input tensor per rank: ", getSize()));
  }
  check_same("reduce_scatter", output, inputs[0]);
  const Reduction how("reduce_scatter", output, options.reduceOp);
  return run(
      OpType::REDUCE_SCATTER, "ddl:reduce_scatter", options.timeout, outputs,
      [=, comm = comm_, list = inputs[0]] { reduce_scatter_now(comm, how, output, pack(list)); });
}

DdlBackend::WorkPtr DdlBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::ReduceScatterOptions& options) {
  return run(OpType::_REDUCE_SCATTER_BASE, "ddl:reduce_scatter_tensor", options.timeout,
             Tensors{output},
             reduce_scatter_body("reduce_scatter_tensor", output, input, options.reduceOp));
}

DdlBackend::WorkPtr DdlBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  if (outputs.size() != inputs.size()) refuse("reduce_scatter_tensor: as many outputs as inputs");
  std::vector<Body> bodies;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    bodies.push_back(
        reduce_scatter_body("reduce_scatter_tensor", outputs[i], inputs[i], options.reduceOp));
  }
  return run_all(OpType::REDUCE_SCATTER_TENSOR_COALESCED, "ddl:reduce_scatter_tensor_coalesced",
                 options.timeout, outputs, std::move(bodies));
}

}  // namespace ddl_torch
