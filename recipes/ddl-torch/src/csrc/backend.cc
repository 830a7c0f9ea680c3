#include "backend.h"

#include <Python.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "error.h"
#include "stream.h"

namespace ddl_torch {
namespace {

using c10d::OpType;
using std::chrono::milliseconds;

constexpr const char* kAborted = "the process group was aborted";

// Groups in the order of their names, on which their members agree: so all ranks leave them in one
// order at exit.
using Groups = std::set<std::pair<std::string, DdlBackend*>>;

struct Registry {
  const pid_t process = getpid();  // the rank
  std::mutex mutex;
  Groups groups;
};

// Never destroyed: a backend may outlive static objects.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

// The members of a new group call with the same name, so their tags agree. Different groups that
// are made at the same time by different threads are told apart unless their names collide.
int tag_of(const std::string& group_id) {
  std::uint32_t hash = 2166136261u;  // FNV-1a: std::hash may differ between hosts
  for (const char c : group_id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return static_cast<int>(hash % DDL_TAGS_OF_PROGRAMS);
}

}  // namespace

DdlBackend::DdlBackend(int rank, std::vector<int> world_ranks, const std::string& group_id,
                       milliseconds timeout)
    : c10d::Backend(rank, static_cast<int>(world_ranks.size())),
      name_(group_id),
      options_(c10::make_intrusive<Options>("ddl", timeout)) {
#if DDL_TORCH_AT_LEAST_2_13
  options_->group_name = group_id;
  options_->global_ranks_in_group.assign(world_ranks.begin(), world_ranks.end());
#endif
  const Timeouts::Scope limit(*timeouts_, timeout);
  check(ddl_comm_create(world_ranks.data(), getSize(), tag_of(group_id), &comm_));
  completions_ = std::make_shared<CompletionPool>();
  threads_ = {std::make_shared<SerialQueue>("ddl-collectives"), std::make_shared<Strands>()};
  init();
  const std::lock_guard<std::mutex> lock(registry().mutex);
  registry().groups.emplace(name_, this);
}

DdlBackend::~DdlBackend() {
  // A forked process has no thread but its own, and nothing of the rank's may end with it.
  if (getpid() != registry().process) {
    static_cast<void>(new Threads(std::move(threads_)));
    static_cast<void>(new std::shared_ptr<CompletionPool>(std::move(completions_)));
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(registry().mutex);
    registry().groups.erase({name_, this});
  }
  // Python may drop the last reference, and an operation that we wait for may have to call Python.
  const bool has_python = Py_IsInitialized() && PyGILState_Check();
  PyThreadState* const state = has_python ? PyEval_SaveThread() : nullptr;
  close();
  if (has_python) PyEval_RestoreThread(state);
}

std::uint64_t DdlBackend::getSequenceNumberForGroup() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return sequence_;
}

// -- Running
// ---------------------------------------------------------------------------------------

DdlBackend::OperationPtr DdlBackend::make_work(OpType type, const char* title, milliseconds timeout,
                                               c10::IValue outputs, Body body,
                                               std::optional<c10::Device> device) {
  if (timeout <= milliseconds(0)) timeout = options_->timeout;
  const c10::Device where = device ? *device : device_of(outputs);
  auto timed = [timeouts = timeouts_, timeout, order = StreamOrder(where), body = std::move(body)] {
    const Timeouts::Scope limit(*timeouts, timeout);
    try {
      order.run(body);
    } catch (const std::exception&) {
      if (!timeouts->is_cancelled()) throw;
      C10_THROW_ERROR(DistBackendError, c10::str("ddl: ", kAborted));
    }
  };
  std::uint64_t sequence = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    sequence = ++sequence_;
  }
  return c10::make_intrusive<OperationWork>(getRank(), type, sequence, title, std::move(outputs),
                                            where, std::move(timed), completions_);
}

DdlBackend::WorkPtr DdlBackend::given(OperationPtr work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (coalesced_) coalesced_->push_back(work);
  return work;
}

DdlBackend::WorkPtr DdlBackend::run(OpType type, const char* title, milliseconds timeout,
                                    c10::IValue outputs, Body body,
                                    std::optional<c10::Device> device) {
  const Threads threads = threads_for(title);
  auto work = make_work(type, title, timeout, std::move(outputs), std::move(body), device);
  threads.collectives->give(work);
  return given(std::move(work));
}

DdlBackend::WorkPtr DdlBackend::run_message(const Strands::Key& key, OperationPtr work) {
  threads_for(work->title()).messages->give(key, work);
  return given(std::move(work));
}

DdlBackend::WorkPtr DdlBackend::run_all(OpType type, const char* title, milliseconds timeout,
                                        c10::IValue outputs, std::vector<Body> bodies) {
  return run(type, title, timeout, std::move(outputs), [bodies = std::move(bodies)] {
    for (const Body& body : bodies) body();
  });
}

DdlBackend::Threads DdlBackend::threads() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return threads_;
}

DdlBackend::Threads DdlBackend::threads_for(const char* title) {
  Threads current = threads();
  if (!current.collectives) refuse(c10::str(title, ": the process group has been destroyed"));
  return current;
}

void DdlBackend::close() {
  Threads threads;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::swap(threads, threads_);
  }
  if (!threads.collectives) return;
  threads = {};  // waits for their ends
  // The callbacks of futures end before the group does; they can begin no operation any more.
  completions_->close();
  // Without ddl there is nothing left to free; an error here has nobody to tell.
  if (ddl_initialized()) ddl_comm_free(comm_);
}

// -- Coalescing
// --------------------------------------------------------------------------------------
// Operations begin at once; the manager's end returns one work for them all. supportsCoalescing()
// stays false: it would only let batch_isend_irecv use a manager, too. When an operation in a
// manager is refused, torch 2.13 leaves the group in the manager for ever, and swallows all later
// operations.

void DdlBackend::startCoalescing() {
  const std::lock_guard<std::mutex> lock(mutex_);
  coalesced_.emplace();
}

DdlBackend::WorkPtr DdlBackend::endCoalescing() {
  std::optional<std::vector<c10::intrusive_ptr<OperationWork>>> works;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    works.swap(coalesced_);
  }
  if (!works) refuse("endCoalescing without startCoalescing before it");
  return c10::make_intrusive<CoalescedWork>(getRank(), std::move(*works));
}

// -- What torch manages, and leaving
// -----------------------------------------------------------------

#if DDL_TORCH_AT_LEAST_2_13
void DdlBackend::setTimeout(milliseconds timeout) { options_->timeout = timeout; }

void DdlBackend::shutdown() { close(); }

void DdlBackend::abort() {
  {
    const Threads current = threads();
    if (current.collectives) current.collectives->cancel_waiting(kAborted);
    if (current.messages) current.messages->cancel_waiting(kAborted);
    timeouts_->cancel();
  }
  close();
}

c10::intrusive_ptr<c10d::Backend> DdlBackend::split(const c10::intrusive_ptr<c10d::Store>&,
                                                    const std::vector<int>& ranks,
                                                    const c10::intrusive_ptr<Options>& options) {
  const auto mine = std::find(ranks.begin(), ranks.end(), getRank());
  if (mine == ranks.end()) return nullptr;  // only members make a communicator
  std::vector<int> world_ranks;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= getSize()) {
      refuse(c10::str("split: there is no rank ", rank, " in a group of ", getSize()));
    }
    world_ranks.push_back(static_cast<int>(options_->global_ranks_in_group[rank]));
  }
  return c10::make_intrusive<DdlBackend>(static_cast<int>(mine - ranks.begin()),
                                         std::move(world_ranks), options->group_name,
                                         options->timeout);
}
#endif

std::string DdlBackend::leave(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (int pass = 0; pass < 2; ++pass) {  // callbacks of futures may begin operations
    const Threads current = threads();
    const auto waits = [](const std::string& title) {
      return c10::str("it exits while ", title, " waits for other ranks");
    };
    if (current.collectives && !current.collectives->drain(deadline)) {
      return waits(current.collectives->current());
    }
    if (current.messages && !current.messages->drain(deadline)) {
      return waits(current.messages->current());
    }
    if (!completions_->drain(deadline)) {
      return "it exits while code that hangs on a future (then) is still running";
    }
  }
  if (!threads().collectives) return "";  // shut down properly
  const Timeouts::Scope limit(*timeouts_, timeout);
  const DDL_Result result = ddl_comm_barrier(comm_);
  const std::string sentence = result == DDL_ERROR_MISMATCH ? ddl_last_error() : "";
  return sentence.empty() ? "" : "it exits while other ranks wait for it: " + sentence;
}

std::string leave_all(std::chrono::milliseconds timeout) {
  Groups groups;
  {
    const std::lock_guard<std::mutex> lock(registry().mutex);
    groups = registry().groups;
  }
  for (const auto& [name, backend] : groups) {
    std::string problem = backend->leave(timeout);
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace ddl_torch
