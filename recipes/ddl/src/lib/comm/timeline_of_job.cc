#include "comm/timeline_of_job.h"

#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "timeline/trace_text.h"

namespace ddl {
namespace {

constexpr int kTag = tags::kSetup.first;

// Rank 0 and the first rank of another host exchange as many messages. The one that took the least
// time says most: the offset is wrong by half of that time at the most.
constexpr int kRounds = 20;

// How many seconds more than the timeout a rank waits for its turn: rank 0 serves one at a time.
double turns(const Comm& world) { return world.size(); }

std::int64_t now() { return nanoseconds(Clock::now()); }

void send_to(Comm& world, int rank, const void* data, std::size_t nbytes) {
  Batch batch(world.transport());
  batch.send(data, nbytes, rank, kTag);
  batch.wait(turns(world));
}

void receive_from(Comm& world, int rank, void* data, std::size_t nbytes) {
  Batch batch(world.transport());
  batch.recv(data, nbytes, rank, kTag);
  batch.wait(turns(world));
}

void answer(Comm& world, int rank) {
  for (int round = 0; round < kRounds; ++round) {
    std::int64_t time = 0;
    receive_from(world, rank, &time, sizeof(time));
    time = now();
    send_to(world, rank, &time, sizeof(time));
  }
}

ClockSample ask_rank_0(Comm& world) {
  ClockSample best;
  best.error = std::numeric_limits<std::int64_t>::max();
  for (int round = 0; round < kRounds; ++round) {
    std::int64_t there = 0;
    const std::int64_t before = now();
    Batch batch(world.transport());
    batch.recv(&there, sizeof(there), 0, kTag);
    batch.send(&before, sizeof(before), 0, kTag);
    batch.wait(turns(world));
    const std::int64_t after = now();
    const std::int64_t half = (after - before + 1) / 2;
    if (half < best.error) best = {before + half, there - (before + half), half};
  }
  return best;
}

// The ranks of a host share its clock, so one of them asks for all.
ClockSample measure_clock(Comm& world) {
  const std::vector<Host>& hosts = world.topology().hosts();
  const std::vector<int>& local = world.local_ranks();
  ClockSample sample;
  sample.at = now();
  if (world.rank() == 0) {
    for (std::size_t host = 1; host < hosts.size(); ++host) answer(world, hosts[host].ranks[0]);
  } else if (world.rank() == local[0]) {
    sample = ask_rank_0(world);
  }
  if (world.rank() != local[0]) {
    receive_from(world, local[0], &sample, sizeof(sample));
  } else {
    for (std::size_t i = 1; i < local.size(); ++i) {
      send_to(world, local[i], &sample, sizeof(sample));
    }
  }
  return sample;
}

void say(const Comm& world, const Error& error) {
  std::fprintf(stderr, "[ddl] %s: %s\n", world.describe(world.rank()).c_str(), error.what());
}

// Writes the parts as they come. After an error of the disk it goes on to receive, so that no rank
// waits for it; ranks that cannot be reached are left out.
void collect(Comm& world, const std::string& own, const std::vector<std::uint64_t>& sizes,
             TraceFile* file) {
  std::optional<Error> error;
  const auto write = [&](const std::string& text) {
    if (error) return;
    try {
      file->write(text);
    } catch (const Error& e) {
      error = e;
    }
  };
  write(kTraceBegin + own);
  try {
    for (int rank = 1; rank < world.size(); ++rank) {
      std::string text(sizes[rank], ' ');
      receive_from(world, rank, text.data(), text.size());
      write(",\n" + text);
    }
  } catch (const Error& e) {
    say(world, e);
  }
  write(kTraceEnd);
  if (error) throw *error;
  file->finish();
  file->remove_parts();
}

}  // namespace

void begin_timeline(Comm& world, Timeline* timeline) {
  timeline->set_host(world.topology().host_of(world.rank()).name);
  const ClockSample sample = measure_clock(world);
  std::int64_t zero = sample.at;
  if (world.rank() == 0) {
    for (int rank = 1; rank < world.size(); ++rank) send_to(world, rank, &zero, sizeof(zero));
  } else {
    receive_from(world, 0, &zero, sizeof(zero));
  }
  timeline->set_clock(sample, zero);
}

void end_timeline(Comm& world, Timeline* timeline, TraceFile* file) {
  try {
    timeline->set_last_clock(measure_clock(world));
    const std::string own = timeline->text();
    const std::uint64_t size = own.size();
    std::vector<std::uint64_t> sizes(world.size());
    Batch batch(world.transport());
    batch.all_gather(&size, sizeof(size), sizes.data());
    batch.wait(turns(world));
    if (file != nullptr) {
      collect(world, own, sizes, file);
    } else {
      send_to(world, 0, own.data(), own.size());
    }
    timeline->drop_part();
  } catch (...) {
    with_current_error([&](const Error& error) { say(world, error); });
  }
}

}  // namespace ddl
