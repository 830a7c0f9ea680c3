// The operations that move data and leave it as it is.
#include <algorithm>
#include <functional>

#include "backend.h"
#include "error.h"

namespace ddl_torch {
namespace {

using c10d::OpType;
using std::chrono::milliseconds;

c10::IValue nested(const std::vector<Tensors>& lists) {
  c10::List<c10::List<at::Tensor>> result;
  for (const Tensors& tensors : lists) {
    result.push_back(c10::List<at::Tensor>(c10::ArrayRef<at::Tensor>(tensors)));
  }
  return result;
}

// The list for this rank's only tensor; [] where there must be none.
const Tensors& list_of_ranks(const char* what, const std::vector<Tensors>& lists, int n) {
  if (lists.size() != 1 || lists[0].size() != static_cast<std::size_t>(n)) {
    refuse(c10::str(what, ": needs a list of one tensor per rank: ", n));
  }
  return lists[0];
}

std::vector<std::uint64_t> sizes_of(const Tensors& tensors) {
  std::vector<std::uint64_t> sizes;
  for (const at::Tensor& tensor : tensors) sizes.push_back(tensor.nbytes());
  return sizes;
}

// Waits for an operation, whose own timeout ends it.
bool succeeds(c10d::Work& work) {
  try {
    return work.wait();
  } catch (const std::exception&) {
    return false;
  }
}

// Bytes and offsets of each rank's part when rows of `tensor` are split.
struct Split {
  std::vector<std::size_t> bytes;
  std::vector<std::size_t> offsets;

  Split(const at::Tensor& tensor, const std::vector<std::int64_t>& rows, int n) {
    const char* what = "all_to_all_single";
    const std::int64_t all = tensor.dim() > 0 ? tensor.size(0) : 0;
    std::vector<std::int64_t> counts = rows;
    if (counts.empty()) {
      if (tensor.dim() == 0 || all % n != 0) {
        refuse(c10::str(what, ": the first dimension (", all, ") cannot be split evenly among ", n,
                        " ranks; give the split sizes"));
      }
      counts.assign(n, all / n);
    }
    std::int64_t sum = 0;
    for (const std::int64_t count : counts) sum += count < 0 ? all + 1 : count;
    if (counts.size() != static_cast<std::size_t>(n) || sum != all) {
      refuse(c10::str(what, ": the split sizes must be ", n, " numbers that add up to the first ",
                      "dimension (", all, ")"));
    }
    const std::size_t row = all > 0 ? tensor.nbytes() / all : 0;
    std::size_t offset = 0;
    for (const std::int64_t count : counts) {
      bytes.push_back(count * row);
      offsets.push_back(offset);
      offset += bytes.back();
    }
  }

  explicit Split(const Tensors& tensors) {  // one after the other
    std::size_t offset = 0;
    for (const at::Tensor& tensor : tensors) {
      bytes.push_back(tensor.nbytes());
      offsets.push_back(offset);
      offset += bytes.back();
    }
  }
};

// Nothing for any rank but one, for which there are all bytes of the tensor.
Split for_rank(int rank, const at::Tensor& tensor, int n) {
  Split split(Tensors(n, at::empty({0}, at::kByte)));
  split.bytes[rank] = tensor.nbytes();
  return split;
}

bool are_equal(const std::vector<std::uint64_t>& sizes) {
  return std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>()) == sizes.end();
}

// The sizes of the tensors in `list`, which only the root has: every rank then knows whether the
// ranks' tensors are of one size. Collective.
bool agree_on_equal(ddl_comm_t comm, const Tensors& list, int n, int root) {
  std::vector<std::uint64_t> sizes = sizes_of(list);
  sizes.resize(n);
  check(ddl_comm_broadcast(comm, sizes.data(), sizes.size() * sizeof(sizes[0]), root));
  return are_equal(sizes);
}

void exchange(ddl_comm_t comm, const at::Tensor& from, const Split& input, const at::Tensor& to,
              const Split& output) {
  check(ddl_comm_alltoallv(comm, from.const_data_ptr(), input.bytes.data(), input.offsets.data(),
                           to.data_ptr(), output.bytes.data(), output.offsets.data()));
}

}  // namespace

DdlBackend::WorkPtr DdlBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only("broadcast", tensors);
  const bool is_root = options.rootRank == getRank();
  const int root = static_cast<int>(options.rootRank);
  return run(OpType::BROADCAST, "ddl:broadcast", options.timeout, tensors, [=, comm = comm_] {
    const at::Tensor memory = is_root ? tensor.contiguous() : landing(tensor);
    check(ddl_comm_broadcast(comm, memory.data_ptr(), memory.nbytes(), root));
    if (!is_root) deliver(memory, tensor);
  });
}

DdlBackend::WorkPtr DdlBackend::barrier(const c10d::BarrierOptions& options) {
  return run(OpType::BARRIER, "ddl:barrier", options.timeout, Tensors(),
             [comm = comm_] { check(ddl_comm_barrier(comm)); });
}

// Rank 0 hears of all before it answers any, so that no rank passes unless all have come. Its words
// are those of torch's Gloo, which programs look for.
void DdlBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const auto timeout = options.timeout > milliseconds(0) ? options.timeout : options_->timeout;
  const int tag = next_monitored_tag();
  const at::Tensor nothing = at::empty({0}, at::kByte);
  const auto give_up = [&](const std::string& who) {
    C10_THROW_ERROR(DistBackendError, c10::str("ddl: ", who, " failed to pass monitoredBarrier in ",
                                               timeout.count(), " ms"));
  };
  if (getRank() != 0) {
    const WorkPtr answer = recv(nothing, 0, tag, timeout);
    if (!succeeds(*send(nothing, 0, tag, timeout)) || !succeeds(*answer)) {
      give_up(c10::str("Rank ", getRank(), ", which had no answer from rank 0,"));
    }
    return;
  }
  std::vector<WorkPtr> arrivals;
  for (int rank = 1; rank < getSize(); ++rank) {
    arrivals.push_back(recv(nothing, rank, tag, timeout));
  }
  std::vector<int> absent;
  for (int rank = 1; rank < getSize(); ++rank) {
    if (succeeds(*arrivals[rank - 1])) continue;
    absent.push_back(rank);
    if (!wait_all_ranks) break;
  }
  if (!absent.empty()) {
    give_up(c10::str(absent.size() > 1 ? "Ranks " : "Rank ", c10::Join(", ", absent)));
  }
  for (int rank = 1; rank < getSize(); ++rank) {
    if (!succeeds(*send(nothing, rank, tag, timeout))) give_up(c10::str("Rank ", rank));
  }
}

// A new tag for each monitored barrier, so that a late message is not taken for one of the next.
int DdlBackend::next_monitored_tag() {
  constexpr int kFirst = 0x7fff0000;  // a program's tags are seldom that large
  const std::lock_guard<std::mutex> lock(mutex_);
  return kFirst + static_cast<int>(num_monitored_++ % 4096);
}

// -- Gathering
// ---------------------------------------------------------------------------------------

DdlBackend::Body DdlBackend::allgather_body(const char* what, const at::Tensor& output,
                                            const at::Tensor& input) {
  check_blocks(what, input, output, getSize());
  return [comm = comm_, output, input] {
    const at::Tensor from = input.contiguous();
    const at::Tensor to = landing(output);
    check(ddl_comm_allgather(comm, from.const_data_ptr(), to.data_ptr(), from.nbytes()));
    deliver(to, output);
  };
}

DdlBackend::Body DdlBackend::allgather_list_body(const char* what, const Tensors& outputs,
                                                 const at::Tensor& input) {
  check_tensor(what, input);
  check_parts(what, input, outputs, getRank());
  return [comm = comm_, outputs, input] {
    const at::Tensor from = input.contiguous();
    const at::Tensor all = flat_like(outputs);
    if (are_equal(sizes_of(outputs))) {
      check(ddl_comm_allgather(comm, from.const_data_ptr(), all.data_ptr(), from.nbytes()));
    } else {
      Split to_each(Tensors(outputs.size(), from));
      std::fill(to_each.offsets.begin(), to_each.offsets.end(), 0);
      exchange(comm, from, to_each, all, Split(outputs));
    }
    unpack(all, outputs);
  };
}

DdlBackend::WorkPtr DdlBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) {
  const at::Tensor& input = only("all_gather", inputs);
  const Tensors& list = list_of_ranks("all_gather", outputs, getSize());
  return run(OpType::ALLGATHER, "ddl:all_gather", options.timeout, nested(outputs),
             allgather_list_body("all_gather", list, input));
}

DdlBackend::WorkPtr DdlBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::AllgatherOptions& options) {
  return run(OpType::_ALLGATHER_BASE, "ddl:all_gather_into_tensor", options.timeout,
             Tensors{output}, allgather_body("all_gather_into_tensor", output, input));
}

// outputs[r][i] is rank r's input i.
DdlBackend::WorkPtr DdlBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& options) {
  const char* const what = "all_gather_coalesced";
  if (outputs.size() != static_cast<std::size_t>(getSize())) {
    refuse(c10::str(what, ": needs one list of outputs per rank: ", getSize()));
  }
  std::vector<Body> bodies;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_input;
    for (const Tensors& of_rank : outputs) {
      if (of_rank.size() != inputs.size()) refuse(c10::str(what, ": an output list is too short"));
      of_input.push_back(of_rank[i]);
    }
    bodies.push_back(allgather_list_body(what, of_input, inputs[i]));
  }
  return run_all(OpType::ALLGATHER_COALESCED, "ddl:all_gather_coalesced", options.timeout,
                 nested(outputs), std::move(bodies));
}

DdlBackend::WorkPtr DdlBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const char* const what = "all_gather_into_tensor";
  if (outputs.size() != inputs.size()) refuse(c10::str(what, ": as many outputs as inputs"));
  std::vector<Body> bodies;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    bodies.push_back(allgather_body(what, outputs[i], inputs[i]));
  }
  return run_all(OpType::ALLGATHER_COALESCED, "ddl:all_gather_into_tensor_coalesced",
                 options.timeout, outputs, std::move(bodies));
}

DdlBackend::WorkPtr DdlBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                       const c10d::GatherOptions& options) {
  const at::Tensor input = only("gather", inputs);
  const int root = static_cast<int>(options.rootRank);
  Tensors list;
  if (root == getRank()) {
    list = list_of_ranks("gather", outputs, getSize());
    check_parts("gather", input, list, root);
  }
  return run(
      OpType::GATHER, "ddl:gather", options.timeout, nested(outputs),
      [=, comm = comm_, n = getSize()] {
        const at::Tensor from = input.contiguous();
        const at::Tensor all = list.empty() ? from.new_empty({0}) : flat_like(list);
        if (agree_on_equal(comm, list, n, root)) {
          check(ddl_comm_gather(comm, from.const_data_ptr(), all.data_ptr(), from.nbytes(), root));
        } else {
          exchange(comm, from, for_rank(root, from, n), all,
                   list.empty() ? Split(Tensors(n, all)) : Split(list));
        }
        if (!list.empty()) unpack(all, list);
      },
      input.device());
}

DdlBackend::WorkPtr DdlBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                        const c10d::ScatterOptions& options) {
  const at::Tensor output = only("scatter", outputs);
  const int root = static_cast<int>(options.rootRank);
  Tensors list;
  if (root == getRank()) {
    list = list_of_ranks("scatter", inputs, getSize());
    check_parts("scatter", output, list, root);
  }
  return run(
      OpType::SCATTER, "ddl:scatter", options.timeout, outputs, [=, comm = comm_, n = getSize()] {
        const at::Tensor to = landing(output);
        const at::Tensor all = list.empty() ? to.new_empty({0}) : pack(list);
        if (agree_on_equal(comm, list, n, root)) {
          check(ddl_comm_scatter(comm, all.const_data_ptr(), to.data_ptr(), to.nbytes(), root));
        } else {
          exchange(comm, all, list.empty() ? Split(Tensors(n, all)) : Split(list), to,
                   for_rank(root, to, n));
        }
        deliver(to, output);
      });
}

// -- From each to each
// -------------------------------------------------------------------------------

DdlBackend::WorkPtr DdlBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                         const c10d::AllToAllOptions& options) {
  const char* const what = "all_to_all";
  const auto n = static_cast<std::size_t>(getSize());
  if (outputs.size() != n || inputs.size() != n) {
    refuse(c10::str(what, ": needs lists of one tensor per rank: ", n));
  }
  check_tensors(what, inputs);
  check_tensors(what, outputs);
  for (const Tensors* list : {&inputs, &outputs}) {
    for (const at::Tensor& tensor : *list) {
      if (tensor.scalar_type() != inputs[0].scalar_type()) {
        refuse(c10::str(what, ": the tensors must be of one type"));
      }
    }
  }
  return run(OpType::ALLTOALL, "ddl:all_to_all", options.timeout, outputs,
             [comm = comm_, from = inputs, to = outputs] {
               const at::Tensor flat = flat_like(to);
               exchange(comm, pack(from), Split(from), flat, Split(to));
               unpack(flat, to);
             });
}

DdlBackend::WorkPtr DdlBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                              std::vector<std::int64_t>& output_split,
                                              std::vector<std::int64_t>& input_split,
                                              const c10d::AllToAllOptions& options) {
  check_tensors("all_to_all_single", {output, input});
  const Split from_split(input, input_split, getSize());
  const Split to_split(output, output_split, getSize());
  return run(OpType::ALLTOALL_BASE, "ddl:all_to_all_single", options.timeout, Tensors{output},
             [=, comm = comm_] {
               const at::Tensor to = landing(output);
               exchange(comm, input.contiguous(), from_split, to, to_split);
               deliver(to, output);
             });
}

// -- From one to one
// ---------------------------------------------------------------------------------

DdlBackend::WorkPtr DdlBackend::send(const at::Tensor& tensor, int peer, int tag,
                                     milliseconds timeout) {
  return run_message(
      {true, peer, tag},
      make_work(OpType::SEND, "ddl:send", timeout, Tensors{tensor}, [=, comm = comm_] {
        const at::Tensor from = tensor.contiguous();
        check(ddl_comm_send(comm, from.const_data_ptr(), from.nbytes(), peer, tag));
      }));
}

DdlBackend::WorkPtr DdlBackend::recv(const at::Tensor& tensor, int peer, int tag,
                                     milliseconds timeout) {
  auto work = make_work(OpType::RECV, "ddl:recv", timeout, Tensors{tensor}, [=, comm = comm_] {
    const at::Tensor to = landing(tensor);
    check(ddl_comm_recv(comm, to.data_ptr(), to.nbytes(), peer, tag));
    deliver(to, tensor);
  });
  work->set_source(std::make_shared<const std::atomic<int>>(peer));
  return run_message({false, peer, tag}, std::move(work));
}

DdlBackend::WorkPtr DdlBackend::send(Tensors& tensors, int peer, int tag) {
  return send(only("send", tensors), peer, tag, c10d::kUnsetTimeout);
}

DdlBackend::WorkPtr DdlBackend::recv(Tensors& tensors, int peer, int tag) {
  return recv(only("recv", tensors), peer, tag, c10d::kUnsetTimeout);
}

DdlBackend::WorkPtr DdlBackend::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor tensor = only("recv", tensors);
  const auto source = std::make_shared<std::atomic<int>>(-1);
  auto work = make_work(OpType::RECVANYSOURCE, "ddl:recv from any rank", c10d::kUnsetTimeout,
                        tensors, [=, comm = comm_] {
                          const at::Tensor to = landing(tensor);
                          int sender = -1;
                          check(ddl_comm_recv_any(comm, to.data_ptr(), to.nbytes(), tag, &sender));
                          *source = sender;
                          deliver(to, tensor);
                        });
  work->set_source(source);
  return run_message({false, Strands::kAnyRank, tag}, std::move(work));
}

}  // namespace ddl_torch
