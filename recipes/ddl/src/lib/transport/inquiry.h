// Who is lost. A rank that waits in vain asks those it waits for, whom they wait for in turn; who
// says nothing is the one. A rank that gives up says so to others, who need not wait any longer.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <list>
#include <set>
#include <vector>

#include "error.h"

namespace ddl {

class MpiTransport;

// An error that another rank has found, in its words; those name it already.
class Relayed : public Error {
 public:
  using Error::Error;
};

// Sends without waiting and takes no error of MPI for one: it is used when something is broken.
class Inquiry {
 public:
  explicit Inquiry(MpiTransport& transport) : transport_(transport) {}
  ~Inquiry();
  Inquiry(const Inquiry&) = delete;
  Inquiry& operator=(const Inquiry&) = delete;

  // Called now and then by a rank that waits for `ranks` (of the communicator): answers those who
  // ask. Throws Relayed when some rank has given up.
  void answer(const std::vector<int>& ranks);

  // After a timeout: of those that this rank waits for, directly or through others that wait, the
  // ones that say nothing for a while (kGrace). All of `ranks` where they wait for each other.
  std::vector<int> find_lost(const std::vector<int>& ranks);

  // This rank leaves with `error`. Log2(size) ranks are told, and tell others when they leave.
  void give_up(const Error& error);

 private:
  enum Kind : std::int32_t { kAsk, kAnswer, kGiveUp };
  struct Notice {
    std::int32_t kind;
    std::int32_t code;
    std::int32_t num_ranks;
    std::int32_t ranks[8];  // whom the sender waits for
    char text[900];
  };
  struct Sent {
    Notice notice;
    MPI_Request request;
  };
  struct Received {
    int from;
    Notice notice;
  };

  static Notice make(Kind kind, const std::vector<int>& ranks);
  void send(int to, const Notice& notice);
  std::vector<Received> receive();

  MpiTransport& transport_;
  std::list<Sent> sent_;
};

}  // namespace ddl
