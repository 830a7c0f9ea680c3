// Finds the rank that is lost. A rank that waits in vain often waits for one that waits in vain
// itself; the lost rank is at the end of that chain. So ranks that wait ask the ranks they wait
// for, and the ranks that those wait for. A rank that does not answer is slow, stuck, dead or cut
// off.
//
// They ask by datagrams beside MPI, since MPI_Isend may block for ever when the other side is dead
// or was never spoken to. Where datagrams do not pass, nobody answers, and a rank names the ranks
// it waits for.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/wait.h"
#include "transport/mpi.h"

namespace ddl {

class FailureDetector {
 public:
  // Collective over the communicator of `transport`, of which this is `rank`.
  FailureDetector(MpiTransport& transport, int rank);
  ~FailureDetector();
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  // Called now and then by a rank that has been waiting for the ranks `whom` for `idle` seconds
  // without anything coming. Answers those who ask, in any communicator; asks when half of the
  // timeout is over, and returns whom to name if it is over now: those that do not answer, or
  // `whom` if all of them do. Throws Relayed when another rank tells that it gave up.
  std::vector<int> look(const std::vector<int>& whom, double idle);

  // Tells the others that this rank gave up, and why. Takes no memory.
  void tell(const Error& error, const char* text);

 private:
  struct Address;
  struct Datagram;
  struct Suspect {
    Clock::time_point asked;
    int unanswered = 0;  // questions since the last answer
    std::vector<int> whom;
  };

  Address open_socket();
  void receive();
  void answer(int rank);
  // Whether `rank` does not answer; asks it when it is time to.
  bool is_silent(int rank);
  void send(int rank, Datagram& datagram) const;

  const std::vector<Peer>& peers_;
  std::map<int, int> rank_of_;  // by its rank in the job
  int rank_;
  int socket_ = -1;  // -1: there is no way to ask
  std::uint64_t nonce_ = 0;
  std::vector<std::vector<sockaddr_in>> addresses_;  // of every rank; none: cannot be asked
  std::map<int, Suspect> suspects_;
  std::set<int> askers_;
  std::optional<Relayed> told_;
};

}  // namespace ddl
