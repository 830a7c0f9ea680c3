#include "transport/mpi.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/timeout.h"

namespace {

bool g_mpi_exits = false;

}  // namespace

// In the place of MPI's own, which calls exit() when a connection was reset.
extern "C" int MPI_Testsome(int count, MPI_Request* requests, int* num_completed, int* indices,
                            MPI_Status* statuses) {
  if (g_mpi_exits) std::exit(3);
  return PMPI_Testsome(count, requests, num_completed, indices, statuses);
}

namespace ddl {
namespace {

// One rank that waits for itself when MPI ends it.
void wait_until_mpi_ends(const WaitWatcher& on_wait) {
  MPI_Init(nullptr, nullptr);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_SELF, &comm);
  MpiTransport transport(comm, {{5, "far"}});
  transport.on_wait = on_wait;
  transport.on_end = [](const Error& error) {
    std::fprintf(stderr, "code %d: %s\n", error.code(), error.what());
  };
  Batch batch(transport);
  int word = 0;
  batch.recv(&word, sizeof(word), 0);
  EXPECT_FALSE(batch.poll([](std::uint64_t) {}));
  g_mpi_exits = true;
  batch.wait();
}

TEST(EndedByMpi, SaysWhatOtherRanksTold) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto told = [](const std::vector<int>& whom, double) -> std::vector<int> {
    if (whom != std::vector<int>{0}) return whom;
    throw Relayed(DDL_ERROR_TIMEOUT, "rank 2 (host near) gave up");
  };
  EXPECT_EXIT(wait_until_mpi_ends(told), testing::ExitedWithCode(EXIT_FAILURE),
              "code 4: rank 2 \\(host near\\) gave up");
}

TEST(EndedByMpi, NamesWhomItWaitedForWhenNobodyTells) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  g_timeout_seconds = 0.4;
  const auto asks = [](const std::vector<int>& whom, double idle) {
    if (idle < 0.2) std::abort();  // too early to ask who is lost
    return whom;
  };
  EXPECT_EXIT(wait_until_mpi_ends(asks), testing::ExitedWithCode(EXIT_FAILURE),
              "the connection to rank 5 \\(host far\\) has ended");
}

TEST(EndedByMpi, AnEndOutsideMpiIsNone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        MPI_Init(nullptr, nullptr);
        MPI_Comm comm = MPI_COMM_NULL;
        MPI_Comm_dup(MPI_COMM_SELF, &comm);
        MpiTransport transport(comm, {{5, "far"}});
        transport.on_end = [](const Error&) { std::abort(); };
        Batch batch(transport);
        int word = 0;
        batch.recv(&word, sizeof(word), 0);
        batch.poll([](std::uint64_t) {});
        std::exit(3);
      },
      testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace ddl
