#include "comm.h"

#include <cstdio>
#include <cstring>

#include "async/fusion.h"
#include "reduce/kernels.h"
#include "schedule/choose.h"
#include "schedule/spread.h"
#include "transport/roll_call.h"

namespace ddl {
namespace {

std::vector<Peer> make_peers(const Topology& topology, const std::vector<int>& world_ranks) {
  std::vector<Peer> peers;
  for (int rank = 0; rank < topology.size(); ++rank) {
    peers.push_back({world_ranks[rank], topology.host_of(rank).name});
  }
  return peers;
}

int rank_in(MPI_Comm comm) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

// Bytes of every rank's part of a chunk. Inside a host, chunks that stay in the caches are best;
// between hosts, longer messages are. A chunk has room for a piece for every rank.
std::size_t choose_chunk(const Topology& topology, const Settings& settings) {
  constexpr std::size_t kWithinHost = std::size_t{64} << 10;
  constexpr std::size_t kBetweenHosts = std::size_t{2} << 20;
  const std::size_t natural = topology.hosts().size() > 1 ? kBetweenHosts : kWithinHost;
  const std::size_t wanted = settings.chunk_bytes > 0 ? settings.chunk_bytes : natural;
  const std::size_t least = static_cast<std::size_t>(topology.size()) * 64;
  return (std::max(wanted, least) + 63) / 64 * 64;
}

// Ranks that cut, fuse or sum differently would not meet.
void check_same_on_all_ranks(MpiTransport& transport, std::size_t chunk, const Settings& settings) {
  struct Setting {
    const char* name;
    long value;
    bool is_number;  // that says something in a message
  };
  const Setting same[] = {
      {"DDL_SHM_CHUNK", static_cast<long>(chunk), true},
      {"DDL_FAKE_SOCKETS", settings.fake_sockets, true},
      {"-fusion_bytes (or DDL_FUSION_BYTES)", static_cast<long>(settings.fusion_bytes), true},
      {"-deterministic", settings.is_deterministic ? 1 : 0, false},
      {"-schedule", settings.schedule, false},
  };
  std::vector<long> bounds;  // of each, the least and the negated greatest
  for (const Setting& setting : same) {
    bounds.push_back(setting.value);
    bounds.push_back(-setting.value);
  }
  Batch batch(transport);
  batch.all_min(bounds.data(), static_cast<int>(bounds.size()));
  batch.wait();
  auto bound = bounds.begin();
  for (const Setting& setting : same) {
    const long least = *bound++;
    const long most = -*bound++;
    if (least == most) continue;
    if (setting.is_number) {
      fail(DDL_ERROR_ARGUMENT, setting.name, " differs between ranks: ", least, " and ", most);
    }
    fail(DDL_ERROR_ARGUMENT, setting.name, " differs between ranks; give all of them the same");
  }
}

// Runs `make` on every rank and tells every rank whether all succeeded: nobody waits for one that
// failed.
HostGroup make_host_group(MpiTransport& transport, const Topology& topology, int rank,
                          const Settings& settings) {
  const std::size_t chunk = choose_chunk(topology, settings);
  check_same_on_all_ranks(transport, chunk, settings);
  // Chunks under way: between hosts, so that every link has something to carry; inside one, for a
  // rank that would wait, and so that a slot's last chunk has left the caches of those who read it
  // before it is written again. Memory that nobody touches is none.
  const int slots = topology.hosts().size() > 1 ? 16 : 32;
  std::optional<HostGroup> group;
  std::optional<Error> error;
  try {
    const Host& host = topology.host_of(rank);
    group.emplace(transport, host.ranks, host.sockets_in_sums(settings), topology.local_rank(rank),
                  chunk, slots, settings.fake_far);
  } catch (const Error& e) {
    error = e;
  }
  long is_ok = error ? 0 : 1;
  Batch batch(transport);
  batch.all_min(&is_ok, 1);
  batch.wait();
  if (error) throw *error;
  if (is_ok == 0) {
    fail(DDL_ERROR_SYSTEM, "another rank could not set up shared memory; see its message");
  }
  return std::move(*group);
}

}  // namespace

Comm::Comm(MPI_Comm comm, Topology topology, const std::vector<int>& world_ranks,
           const Settings& settings)
    : topology_(std::move(topology)),
      rank_(rank_in(comm)),
      settings_(settings),
      transport_(comm, make_peers(topology_, world_ranks)),
      mailbox_(transport_),
      host_(make_host_group(transport_, topology_, rank_, settings)),
      chunking_(usual_chunking(topology_.tree(), num_lanes())),
      fusion_(std::make_unique<Fusion>(*this, settings.fusion_bytes)),
      device_(make_device(*this)),
      queue_({settings.fusion_bytes,
              std::chrono::duration<double, std::milli>(settings.fusion_wait_ms)},
             [this](const std::vector<Allreduce>& queued) { return fusion_->run(queued); }) {
  chunking_.slots = host_.slots();
  chunking_.most_chunk = std::min(chunking_.most_chunk, host_.chunk_bytes());
  chunking_.least_chunk = std::min(chunking_.least_chunk, chunking_.most_chunk);
  if (num_hosts() > 1) {
    inquiry_ = std::make_unique<Inquiry>(transport_, rank_);
    host_.on_wait = [this](const auto& whom, double idle) { return inquiry_->look(whom, idle); };
  }
  transport_.on_wait = [this](const auto& whom, double idle) {
    host_.check_members();
    return inquiry_ ? inquiry_->look(whom, idle) : whom;
  };
  transport_.on_end = [this](const Error& error) {
    std::fprintf(stderr, "[ddl] MPI ends %s: %s\n", describe(rank_).c_str(), error.what());
    tell_others(error);
  };
}

Comm::~Comm() {
  // The process ends without ddl_finalize: neither our own thread nor the others shall wait long.
  if (queue_.is_ahead()) {
    tell_others(Error(DDL_ERROR_PEER_LOST, "it ended with asynchronous operations under way"));
  }
}

void Comm::meet(const std::vector<int>& ranks, int tag) {
  std::string group = "a group of " + std::to_string(ranks.size()) + " ranks:";
  for (const int rank : ranks) group += " " + std::to_string(transport_.peers()[rank].world_rank);
  check_usable();
  try {
    call_roll(transport_, ranks, kRollCallTag + 2 * tag, group);
  } catch (const Error& error) {
    if (!is_agreed(error)) give_up(error);
    throw;
  }
}

// MPI has no error class for this; MPICH, which has 2048 communicators, has a sentence.
static void check_has_room(int code) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  if (std::strstr(text, "Too many communicators") == nullptr) return;
  fail(DDL_ERROR_MPI,
       "ddl_comm_create: MPI has no communicator left for another group; destroy groups that are "
       "no longer needed");
}

std::unique_ptr<Comm> Comm::subset(const std::vector<int>& ranks, int tag) {
  meet(ranks, tag);  // MPI would wait for them without a limit
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(transport_.comm(), &all), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members),
            "MPI_Group_incl");
  MPI_Comm comm = MPI_COMM_NULL;
  const int code = MPI_Comm_create_group(transport_.comm(), members, tag, &comm);
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  check_has_room(code);
  check_mpi(code, "MPI_Comm_create_group");
  std::vector<int> world_ranks;
  for (const int rank : ranks) world_ranks.push_back(transport_.peers()[rank].world_rank);
  return std::make_unique<Comm>(comm, topology_.subset(ranks), world_ranks, settings_);
}

Device& Comm::device() {
  if (!device_) check_device_present("a buffer on a GPU");
  return *device_;
}

ddl_stats Comm::stats() const {
  return {num_collectives_.load(std::memory_order_relaxed), queue_.num_submitted(),
          fusion_->num_requests(), fusion_->num_messages()};
}

// Programs move the same few sizes again and again.
constexpr std::size_t kMaxPlans = 256;

std::shared_ptr<const Plan> Comm::plan(const PlanKey& key) {
  const int schedule = choice_for(call_bytes_).schedule;
  if (plans_.size() >= kMaxPlans) plans_.clear();
  std::shared_ptr<const Plan>& plan = plans_[{key, schedule}];
  if (!plan) plan = std::make_shared<Plan>(make_plan(key, arrange(topology_.tree(), schedule)));
  return plan;
}

Comm::Choice Comm::choice_for(std::size_t nbytes) {
  if (choices_.size() >= kMaxPlans) choices_.clear();
  const auto [entry, is_new] = choices_.try_emplace(nbytes);
  if (is_new) {
    const Node& tree = topology_.tree();
    const int schedule = settings_.schedule != kAnySchedule
                             ? settings_.schedule
                             : choose_schedule(tree, nbytes, chunking_);
    const Node arranged = arrange(tree, schedule);
    entry->second = {schedule,
                     predict_allreduce(arranged, nbytes, chunking_, usual_wire(tree)).window};
  }
  return entry->second;
}

Plan Comm::make_plan(const PlanKey& key, const Node& tree) const {
  if (key.collective == Collective::kAllreduce) {
    return plan_allreduce(tree, host_index(), key.count, kPlanUnit);
  }
  if (key.collective == Collective::kBroadcast) {
    return plan_broadcast(tree, host_index(), key.root, key.count, kPlanUnit);
  }
  const std::size_t block = key.count / topology_.size();
  Pieces owned;
  std::size_t begin = 0;
  for (int h = 0; h < num_hosts(); ++h) {
    const std::size_t end = begin + block * topology_.hosts()[h].ranks.size();
    owned.push_back({{begin, end}, h});
    begin = end;
  }
  return key.collective == Collective::kAllgather
             ? plan_allgather(tree, host_index(), owned, kPlanUnit)
             : plan_reduce_scatter(tree, host_index(), owned, kPlanUnit);
}

std::byte* Comm::workspace(std::size_t nbytes) {
  if (workspace_.size() < nbytes) workspace_ = std::vector<std::byte>(nbytes);
  return workspace_.data();
}

void Comm::run(const Call& call, const std::function<void()>& collective) {
  std::unique_lock<std::mutex> one_at_a_time(mutex_);
  if (queue_.is_ahead()) {
    one_at_a_time.unlock();
    queue_.run_behind([&] { run(call, collective); });
    return;
  }
  check_usable();
  const auto every = static_cast<std::uint64_t>(settings_.dump_every);
  const bool is_traced = settings_.debug_level >= 2 || (every > 0 && (num_calls_ + 1) % every == 0);
  const Clock::time_point start = is_traced ? Clock::now() : Clock::time_point();
  try {
    collective();
    end_copies();
  } catch (const Disagreement&) {
    throw;
  } catch (const Error& error) {
    give_up(error);
    throw;
  }
  if (call.collective != Collective::kIallreduce) {
    num_collectives_.fetch_add(1, std::memory_order_relaxed);
  }
  if (is_traced) {
    const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
    std::fprintf(stderr, "[ddl] %s: call %llu: %s took %.1f us\n", describe(rank_).c_str(),
                 static_cast<unsigned long long>(num_calls_),
                 ddl::describe(announced(call)).c_str(), elapsed.count());
  }
}

void Comm::check_usable() {
  const std::lock_guard<std::mutex> lock(failure_mutex_);
  if (!failure_) return;
  fail(failure_->code(),
       "this communicator is unusable since an earlier error: ", failure_->what());
}

void Comm::give_up(const Error& error) {
  {
    const std::lock_guard<std::mutex> lock(failure_mutex_);
    failure_ = error;
  }
  tell_others(error);
}

void Comm::tell_others(const Error& error) {
  const bool is_relayed = dynamic_cast<const Relayed*>(&error) != nullptr;
  const std::string text =
      is_relayed ? error.what() : concat(describe(rank_), " gave up: ", error.what());
  host_.give_up(error.code(), text);
  if (inquiry_) inquiry_->tell(error, text);
}

Call Comm::announced(Call call) const {
  if (call.collective != Collective::kIallreduce) call.fusion = fusion_fingerprint_;
  return call;
}

void Comm::announce(const Call& call) {
  ++num_calls_;
  call_bytes_ = bytes_of(call, topology_.size());
  host_.announce(announced(call), call_parity());
}

void Comm::agree_on_host() { enforce(compare_calls()); }

std::uint32_t Comm::begin(const Call& call) {
  announce(call);
  Verdict verdict = compare_calls();
  if (num_hosts() > 1) verdict = agree_between_hosts(verdict);
  enforce(verdict);
  return verdict.calls[0].fusion;
}

Verdict Comm::compare_calls() {
  host_.wait_all_announced(call_parity());
  const Call& first = host_.call(0, call_parity());
  Verdict verdict{0, {local_ranks()[0], local_ranks()[0]}, {first, first}};
  for (int i = 1; i < host_.size() && !verdict.is_mismatch; ++i) {
    const Call& other = host_.call(i, call_parity());
    if (other == first) {
      verdict.calls[0].fusion = std::min(verdict.calls[0].fusion, other.fusion);
    } else {
      verdict = {1, {local_ranks()[0], local_ranks()[i]}, {first, other}};
    }
  }
  return verdict;
}

// The hosts' first ranks spread what they know by dissemination: after log2(hosts) rounds each has
// heard, directly or not, of every host, so a mismatch anywhere is known everywhere.
Verdict Comm::agree_between_hosts(Verdict verdict) {
  const int hosts = num_hosts();
  if (host_.rank() == 0) {
    for (int distance = 1; distance < hosts; distance *= 2) {
      const Host& to = topology_.hosts()[(host_index() + distance) % hosts];
      const Host& from = topology_.hosts()[(host_index() - distance + hosts) % hosts];
      const Verdict mine = verdict;
      Verdict other{};
      Batch batch(transport_);
      batch.recv(&other, sizeof(other), from.ranks[0]);
      batch.send(&mine, sizeof(mine), to.ranks[0]);
      batch.wait();
      if (mine.is_mismatch) continue;
      if (other.is_mismatch) {
        verdict = other;
      } else if (!(other.calls[0] == mine.calls[0])) {
        verdict = {1, {mine.ranks[0], other.ranks[0]}, {mine.calls[0], other.calls[0]}};
      } else {
        verdict.calls[0].fusion = std::min(mine.calls[0].fusion, other.calls[0].fusion);
      }
    }
    host_.verdict() = verdict;
  } else {
    host_.wait_done(0, host_.done() + 1);
    verdict = host_.verdict();
  }
  host_.post_done();
  return verdict;
}

void Comm::enforce(const Verdict& verdict) const {
  if (!verdict.is_mismatch) return;
  throw Disagreement(concat("the ranks did not make the same call: ", describe(verdict.ranks[0]),
                            " called ", ddl::describe(verdict.calls[0]), ", but ",
                            describe(verdict.ranks[1]), " called ",
                            ddl::describe(verdict.calls[1])));
}

}  // namespace ddl
