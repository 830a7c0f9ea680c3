// ddl-stage: brings an image of an environment to every host's own disk, for ddlrun -stage.
//
// One process runs on each host. Rank 0 alone reads the image. It goes by libddl's broadcast, which
// knows the topology, so that each link between racks carries it once, and is unpacked as it
// comes. Nothing is sent to hosts that have it, and nobody waits for another job while others
// wait for him: a host where another job unpacks is asked again when ours are done.
//
// Standard output has one line of rank 0, `HOSTS UNPACKED EVICTED`, or a line `HOST: fault` for
// each host with a fault; then the exit status is 2, and nothing half-unpacked is left.
#include <ddl/ddl.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "janitor.h"
#include "options.h"
#include "place.h"
#include "unpack.h"

namespace ddl::stage {
namespace {

constexpr std::size_t chunk = 4 << 20;
// Seconds for a host whose disk is slow, if DDL_TIMEOUT does not say: the longest that others wait
// for is the removal of a copy. A host that is cut off is noticed after as long.
constexpr double peer_timeout_s = 120;
constexpr int exit_fault = 2, exit_library = 3;

void check(DDL_Result result) {
  if (result != DDL_SUCCESS) ddl_abort(exit_library, ddl_last_error());
}

// What each host tells the others between two steps.
struct Word {
  State state = State::have;
  char text[500] = "";
};

// Rank 0's side of the file.
class Source {
 public:
  explicit Source(const Options& options) {
    file_ = open(options.image.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0) throw Fault(options.image + ": " + std::strerror(errno));
    const off_t size = lseek(file_, 0, SEEK_END);
    if (size != static_cast<off_t>(options.size)) {
      throw Fault(options.image + " is damaged: it has " + std::to_string(size) + " bytes, not " +
                  std::to_string(options.size));
    }
    lseek(file_, 0, SEEK_SET);
  }
  ~Source() { close(file_); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // The next piece. What cannot be read is sent as it is: its digest says so on every host.
  void read_piece(char* to, std::size_t size) {
    while (size > 0) {
      const ssize_t got = read(file_, to, size);
      if (got <= 0) break;
      to += got;
      size -= static_cast<std::size_t>(got);
    }
  }

 private:
  int file_ = -1;
};

class Stager {
 public:
  explicit Stager(Options options) : options_(std::move(options)) {
    try {
      place_ = std::make_unique<Place>(options_.place, options_.name);
      evicted_ = place_->evict(options_.keep);
      janitor_ = std::make_unique<Janitor>(place_->lock_file(), place_->partial());
    } catch (const Fault& fault) {
      fault_ = fault.what();
    }
  }

  int run() {
    check(ddl_init(nullptr));
    if (!std::getenv("DDL_TIMEOUT")) check(ddl_set_timeout(peer_timeout_s));
    check(ddl_rank(&rank_));
    check(ddl_size(&size_));
    for (;;) {
      const std::vector<Word> words = exchange(attempt([this] { return prepare(); }));
      if (report(words)) return end(exit_fault);
      std::vector<int> members = needing(words);
      if (!members.empty()) {
        if (members[0] != 0) members.insert(members.begin(), 0);
        const bool takes_part = std::find(members.begin(), members.end(), rank_) != members.end();
        const Word done = takes_part ? transfer(members) : Word{};
        if (report(exchange(done))) return end(exit_fault);
      } else if (std::all_of(words.begin(), words.end(),
                             [](const Word& word) { return word.state == State::have; })) {
        break;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
      }
    }
    const std::vector<int> counts = gather_counts();
    if (rank_ == 0) std::printf("%d %d %d\n", size_, counts[0], counts[1]);
    return end(0);
  }

 private:
  // Runs a step; its fault becomes a word, and leaves nothing behind.
  template <class Step>
  Word attempt(Step step) {
    Word word;
    try {
      if (!fault_.empty()) throw Fault(fault_);
      word.state = step();
    } catch (const Fault& fault) {
      word.state = State::fault;
      std::snprintf(word.text, sizeof word.text, "%s", fault.what());
      unpacker_.reset();  // its tar, before the files that it writes
      abandon();
    }
    return word;
  }

  State prepare() {
    const State state = place_->look();
    if (rank_ == 0 && !source_) source_ = std::make_unique<Source>(options_);
    if (state == State::need) {
      holds_ = true;
      janitor_->arm();
      place_->prepare(options_.unpacked, options_.files);
    }
    return state;
  }

  void abandon() {
    if (!holds_) return;
    try {
      place_->abandon();
    } catch (const Fault&) {  // the next staging tries again
    }
    release();
  }

  void release() {
    janitor_->disarm();
    place_->unlock();
    holds_ = false;
  }

  std::vector<Word> exchange(const Word& mine) {
    std::vector<Word> words(static_cast<std::size_t>(size_));
    check(ddl_comm_allgather(DDL_COMM_WORLD, &mine, words.data(), sizeof(Word)));
    return words;
  }

  std::vector<int> needing(const std::vector<Word>& words) const {
    std::vector<int> found;
    for (int rank = 0; rank < size_; ++rank) {
      if (words[static_cast<std::size_t>(rank)].state == State::need) found.push_back(rank);
    }
    return found;
  }

  // Rank 0 prints the faults; whether there are any. Then all of us leave nothing half-unpacked.
  bool report(const std::vector<Word>& words) {
    bool found = false;
    for (int rank = 0; rank < size_; ++rank) {
      const Word& word = words[static_cast<std::size_t>(rank)];
      if (word.state != State::fault) continue;
      found = true;
      const char* host = nullptr;
      check(ddl_host_name(rank, &host));
      if (rank_ == 0) std::printf("%s: %s\n", host, word.text);
    }
    if (found) abandon();
    return found;
  }

  // Sends the image from rank 0 to `members`; what has become of it here.
  Word transfer(const std::vector<int>& members) {
    ddl_comm_t comm = DDL_COMM_WORLD;
    const bool all = static_cast<int>(members.size()) == size_;
    if (!all && members.size() > 1) {
      check(ddl_comm_create(members.data(), static_cast<int>(members.size()), 0, &comm));
    }
    Word word = attempt([&] {
      if (holds_) unpacker_ = std::make_unique<Unpacker>(place_->partial());
      return State::have;
    });
    const std::size_t pieces = (options_.size + chunk - 1) / chunk;
    for (std::size_t piece = 0; piece <= pieces; ++piece) {
      ddl_request_t request = DDL_REQUEST_NULL;
      if (piece < pieces) request = send(comm, members.size(), piece);
      if (piece > 0 && unpacker_ && word.state != State::fault) {
        word = attempt([&] {
          unpacker_->feed(buffers_[(piece - 1) % 2].data(), length(piece - 1));
          return State::have;
        });
      }
      if (request != DDL_REQUEST_NULL) check(ddl_wait(&request));
    }
    if (unpacker_ && word.state != State::fault) {
      word = attempt([&] {
        unpacker_->finish(options_.sha256);
        place_->complete();
        return State::have;
      });
      if (word.state != State::fault) {
        unpacker_.reset();
        ++unpacked_;
        release();
      }
    }
    if (!all && members.size() > 1) check(ddl_comm_free(comm));
    return word;
  }

  std::size_t length(std::size_t piece) const {
    return std::min<std::uint64_t>(chunk, options_.size - piece * chunk);
  }

  // Begins to send a piece, or to receive it; no two are in one buffer at a time.
  ddl_request_t send(ddl_comm_t comm, std::size_t members, std::size_t piece) {
    std::vector<char>& buffer = buffers_[piece % 2];
    buffer.resize(chunk);
    if (rank_ == 0) {
      if (piece == 0) source_ = std::make_unique<Source>(options_);
      source_->read_piece(buffer.data(), length(piece));
    }
    ddl_request_t request = DDL_REQUEST_NULL;
    if (members > 1) {
      check(ddl_comm_ibroadcast(comm, buffer.data(), length(piece), 0, &request));
    }
    return request;
  }

  std::vector<int> gather_counts() {
    int mine[2] = {unpacked_, evicted_}, sums[2] = {0, 0};
    check(ddl_comm_allreduce(DDL_COMM_WORLD, mine, sums, 2, DDL_TYPE_INT32, DDL_OP_SUM));
    return {sums[0], sums[1]};
  }

  int end(int status) {
    std::fflush(stdout);
    check(ddl_finalize());
    return status;
  }

  Options options_;
  std::unique_ptr<Place> place_;
  std::unique_ptr<Janitor> janitor_;
  std::unique_ptr<Source> source_;  // rank 0's
  std::unique_ptr<Unpacker> unpacker_;
  std::string fault_;
  std::vector<char> buffers_[2];
  bool holds_ = false;  // the lock, and a partial folder
  int rank_ = 0, size_ = 1, unpacked_ = 0, evicted_ = 0;
};

}  // namespace
}  // namespace ddl::stage

int main(int argc, char** argv) {
  try {
    return ddl::stage::Stager(ddl::stage::read_options(argc, argv)).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddl-stage: %s\n", error.what());
    return ddl::stage::exit_fault;
  }
}
