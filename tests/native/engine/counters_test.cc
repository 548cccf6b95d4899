// Counters: what a wait was for, several threads at once, errors, and engines one after the other in one memory.
#include "engine/record/counters.h"

#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "native/harness/harness.h"

namespace hvd::test::engine_counters {

using namespace hvd::engine;

namespace {

using Words = std::array<uint64_t, HVD_COUNTER_WORDS>;
constexpr uint64_t kSecond = 1'000'000'000;

std::string Text(const Words& words) { return reinterpret_cast<const char*>(words.data() + HVD_COUNTER_ERROR_TEXT); }

}  // namespace

TEST(counters_divide_a_wait_by_whether_batches_ran) {
  Words words{};
  Counters counters(words.data());
  counters.BeginWait(10);
  counters.BatchesBegin(13, 11);
  EXPECT(counters.batches_run());
  counters.BatchesEnd(14);
  counters.EndWait(16);
  EXPECT_EQ(words[HVD_COUNTER_BLOCKED_NS], 6 * kSecond);
  EXPECT_EQ(words[HVD_COUNTER_TRANSFER_NS], kSecond);
  EXPECT_EQ(words[HVD_COUNTER_BATCH_NS], kSecond);
  EXPECT_EQ(words[HVD_COUNTER_PENDING_NS], 2 * kSecond);
  EXPECT_EQ(words[HVD_COUNTER_CHANGED_NS], 14 * kSecond);
  EXPECT(!counters.batches_run());
}

TEST(counters_take_a_batch_that_began_before_the_wait_or_goes_on_after_it) {
  Words words{};
  Counters counters(words.data());
  counters.BatchesBegin(1, 1);
  counters.BeginWait(3);
  counters.EndWait(4);
  counters.BatchesEnd(9);
  EXPECT_EQ(words[HVD_COUNTER_BLOCKED_NS], kSecond);
  EXPECT_EQ(words[HVD_COUNTER_TRANSFER_NS], kSecond);
  EXPECT_EQ(words[HVD_COUNTER_BATCH_NS], 8 * kSecond);
}

TEST(counters_count_several_waiting_threads_once) {
  Words words{};
  Counters counters(words.data());
  counters.BeginWait(1);
  counters.BeginWait(2);
  counters.EndWait(3);
  EXPECT_EQ(words[HVD_COUNTER_BLOCKED_NS], 0u);
  EXPECT_EQ(words[HVD_COUNTER_BLOCKED_THREADS], 1u);
  counters.EndWait(5);
  EXPECT_EQ(words[HVD_COUNTER_BLOCKED_NS], 4 * kSecond);
}

TEST(counters_wait_for_others_from_the_last_batch_on) {
  Words words{};
  Counters counters(words.data());
  counters.BatchesBegin(10, 1e300);  // of a rank that has joined
  counters.BatchesEnd(20);
  EXPECT_EQ(words[HVD_COUNTER_PENDING_NS], 0u);
  counters.BatchesBegin(21, 15);  // submitted while the one before ran
  EXPECT_EQ(words[HVD_COUNTER_PENDING_NS], kSecond);
}

TEST(counters_keep_the_last_error_whole_or_cut_between_characters) {
  Words words{};
  Counters counters(words.data());
  EXPECT_EQ(counters.LastError(), "");
  counters.CountError("first");
  counters.CountError(std::string(253, 'x') + "\u00e9\u00e9");
  EXPECT_EQ(words[HVD_COUNTER_ERRORS], 2u);
  EXPECT_EQ(words[HVD_COUNTER_ERROR_TURN] % 2, 0u);
  EXPECT_EQ(Text(words), std::string(253, 'x') + "\u00e9");
  counters.CountError("last");
  EXPECT_EQ(Text(words), "last");
  EXPECT_EQ(counters.LastError(), "last");
}

TEST(counters_of_threads_are_all_there) {
  Words words{};
  Counters counters(words.data());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) counters.CountError("one");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(words[HVD_COUNTER_ERRORS], 4000u);
  EXPECT_EQ(Text(words), "one");
}

TEST(counters_of_the_next_engine_go_on_and_its_own_begin_at_zero) {
  Words words{};
  {
    Counters first(words.data());
    first.CountBatch(3);
    first.SetInFlight(2);
    first.BeginWait(1);
    first.CountError("lost");
    first.BatchesBegin(1, 1);
  }
  Counters second(words.data());
  EXPECT_EQ(words[HVD_COUNTER_IN_FLIGHT], 0u);
  EXPECT_EQ(words[HVD_COUNTER_BLOCKED_THREADS], 0u);
  EXPECT(!second.batches_run());
  second.CountBatch(4);
  EXPECT_EQ(words[HVD_COUNTER_TENSORS], 7u);
  EXPECT_EQ(second.Since(HVD_COUNTER_TENSORS), 4u);
  EXPECT_EQ(second.LastError(), "");
}

TEST(counters_of_the_next_engine_know_nothing_of_a_wait_that_ends_late) {
  Words words{};
  Counters first(words.data());
  first.BeginWait(1);
  Counters second(words.data());
  first.EndWait(5);
  EXPECT_EQ(words[HVD_COUNTER_BLOCKED_THREADS], 0u);
  EXPECT_EQ(words[HVD_COUNTER_BLOCKED_NS], 0u);
  second.BeginWait(6);
  first.BeginWait(6);  // of a thread that was late even for this
  first.EndWait(7);
  second.EndWait(8);
  EXPECT_EQ(words[HVD_COUNTER_BLOCKED_THREADS], 0u);
  EXPECT_EQ(words[HVD_COUNTER_BLOCKED_NS], 2 * kSecond);
}

TEST(counters_have_memory_of_their_own_where_none_is_given) {
  Counters counters;
  counters.Note(OpType::kBroadcast, 0, "a", 12);
  counters.Note(OpType::kBroadcast, 0, "a", 12);
  EXPECT_EQ(counters.Since(HVD_COUNTER_OPERATIONS + 2 * HVD_BROADCAST), 2u);
  EXPECT_EQ(counters.Since(HVD_COUNTER_OPERATIONS + 2 * HVD_BROADCAST + 1), 24u);
  EXPECT_EQ(counters.Since(HVD_COUNTER_STEPS), 1u);
}

}  // namespace hvd::test::engine_counters
