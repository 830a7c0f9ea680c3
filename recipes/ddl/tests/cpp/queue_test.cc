#include "async/queue.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"

namespace ddl {
namespace {

constexpr std::chrono::milliseconds kLong{10'000};

// Says that all went well, and notes how many there were at a time.
class Recorder {
 public:
  std::vector<Outcome> operator()(const std::vector<Arguments>& queued) {
    sizes.push_back(queued.size());
    return std::vector<Outcome>(queued.size());
  }
  std::vector<std::size_t> sizes;
};

Arguments nothing() { return {nullptr, nullptr, 0, DDL_TYPE_FLOAT, DDL_OP_SUM}; }

TEST(QueueTest, RunsInTheOrderGivenAndTellsOutcomes) {
  Queue queue({0, kLong}, Recorder());
  std::vector<int> order;
  std::vector<std::shared_ptr<Request>> requests;
  for (int i = 0; i < 100; ++i) {
    requests.push_back(queue.submit([i, &order] {
      order.push_back(i);
      if (i % 10 == 3) fail(DDL_ERROR_MISMATCH, "number ", i);
    }));
  }
  queue.run_behind([&] { order.push_back(100); });
  ASSERT_EQ(order.size(), 101U);
  for (int i = 0; i <= 100; ++i) EXPECT_EQ(order[i], i);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(requests[i]->is_done());
    EXPECT_EQ(requests[i]->outcome().code, i % 10 == 3 ? DDL_ERROR_MISMATCH : DDL_SUCCESS);
  }
  EXPECT_EQ(requests[13]->outcome().message, "number 13");
  EXPECT_EQ(queue.num_submitted(), 101U);
}

TEST(QueueTest, ThrowsWhatTheBodyThrows) {
  Queue queue({0, kLong}, Recorder());
  EXPECT_THROW(queue.run_behind([] { throw Error(DDL_ERROR_TIMEOUT, "late"); }), Error);
}

TEST(QueueTest, IsAheadOfOthersOnlyAndOnlyWhileItHasWork) {
  Queue queue({0, kLong}, Recorder());
  EXPECT_FALSE(queue.is_ahead());
  std::atomic<bool> may_end{false};
  bool ahead_of_itself = true;
  const auto request = queue.submit([&] {
    ahead_of_itself = queue.is_ahead();
    while (!may_end) std::this_thread::yield();
  });
  EXPECT_TRUE(queue.is_ahead());
  EXPECT_FALSE(request->is_done());
  EXPECT_FALSE(request->wait_until(Clock::now()));
  may_end = true;
  request->wait();
  EXPECT_FALSE(queue.is_ahead());
  EXPECT_FALSE(ahead_of_itself);
}

TEST(QueueTest, HoldsAllreducesBackUntilSomeoneWaits) {
  Recorder recorder;
  Queue queue({64, kLong}, std::ref(recorder));
  std::vector<std::shared_ptr<Request>> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(queue.submit(nothing()));
  requests.back()->wait();
  EXPECT_EQ(recorder.sizes, (std::vector<std::size_t>{5}));
}

TEST(QueueTest, AnotherOperationEndsTheGroup) {
  Recorder recorder;
  Queue queue({64, kLong}, std::ref(recorder));
  const auto first = queue.submit(nothing());
  const auto second = queue.submit(nothing());
  const auto other = queue.submit([] {});
  while (!second->is_done()) std::this_thread::yield();  // polling does not hurry it
  EXPECT_EQ(recorder.sizes, (std::vector<std::size_t>{2}));
  other->wait();
}

TEST(QueueTest, TheWaitForCompanyEnds) {
  Recorder recorder;
  Queue queue({64, std::chrono::milliseconds(1)}, std::ref(recorder));
  const auto lonely = queue.submit(nothing());
  while (!lonely->is_done()) std::this_thread::yield();
  EXPECT_EQ(recorder.sizes, (std::vector<std::size_t>{1}));
}

TEST(QueueTest, WhatIsNotCarriedOutStaysQueued) {
  std::vector<std::size_t> sizes;
  Queue queue({64, kLong}, [&](const std::vector<Arguments>& queued) {
    sizes.push_back(queued.size());
    return std::vector<Outcome>((queued.size() + 1) / 2);
  });
  for (int i = 0; i < 7; ++i) queue.submit(nothing());
  queue.drain();
  EXPECT_EQ(sizes, (std::vector<std::size_t>{7, 3, 1}));
}

TEST(QueueTest, RequestsOutliveTheQueueWhichCarriesOutWhatIsLeft) {
  int runs = 0;
  std::shared_ptr<Request> last;
  {
    Queue queue({64, kLong}, Recorder());
    queue.submit([&] { ++runs; });
    last = queue.submit(nothing());
  }
  EXPECT_EQ(runs, 1);
  last->wait();
  EXPECT_EQ(last->outcome().code, DDL_SUCCESS);
}

// For ThreadSanitizer: everything at once.
TEST(QueueTest, ManyThreadsSubmitAndWait) {
  std::size_t carried_out = 0;
  Queue queue({64, std::chrono::microseconds(50)}, [&](const std::vector<Arguments>& queued) {
    carried_out += queued.size();
    return std::vector<Outcome>(queued.size());
  });
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  std::size_t ran = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const auto first = queue.submit(nothing());
        const auto second = queue.submit([&] { ++ran; });
        if ((i + t) % 3 == 0) queue.run_behind([&] { ++ran; });
        if ((i + t) % 5 == 0) first->wait();
        if ((i + t) % 7 == 0) second->wait_until(Clock::now() + std::chrono::milliseconds(1));
        first->is_done();
        queue.is_ahead();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  queue.drain();
  EXPECT_EQ(carried_out, static_cast<std::size_t>(kThreads * kRounds));
  EXPECT_GE(ran, static_cast<std::size_t>(kThreads * kRounds));
}

}  // namespace
}  // namespace ddl
