// Steps: where one ends, what it holds, and who waits for it.
#include "engine/record/steps.h"

#include <string>
#include <thread>

#include "native/harness/harness.h"

namespace hvd::test::engine_steps {

using namespace hvd::engine;

namespace {

Steps::Count Asked(Steps& steps) {
  Steps::Count count;
  EXPECT_OK(steps.Await(0, 0, &count));
  return count;
}

void Reduce(Steps& steps, const std::string& name, int64_t bytes, int process_set = 0) {
  steps.Note(OpType::kAllreduce, process_set, name, bytes);
}

}  // namespace

TEST(steps_end_where_a_tensor_comes_again) {
  Steps steps;
  Asked(steps);
  for (int step = 0; step < 3; ++step) {
    Reduce(steps, "a", 10);
    Reduce(steps, "b", 20);
    Reduce(steps, "loss." + std::to_string(step), 1);  // a new name each time
  }
  const Steps::Count count = Asked(steps);
  EXPECT_EQ(count.steps, 2);
  EXPECT_EQ(count.bytes, 62);  // the third is under way
  EXPECT(count.at_s > 0);
}

TEST(steps_hold_a_name_once_for_each_operation_and_process_set) {
  Steps steps;
  Asked(steps);
  Reduce(steps, "a", 1);
  Reduce(steps, "a", 1, 7);
  steps.Note(OpType::kBroadcast, 0, "a", 1);
  EXPECT_EQ(Asked(steps).steps, 0);
  Reduce(steps, "a", 1, 7);
  EXPECT_EQ(Asked(steps).steps, 1);
}

TEST(steps_begin_where_somebody_asks) {
  Steps steps;
  for (int i = 0; i < 3; ++i) Reduce(steps, "a", 10);
  EXPECT_EQ(Asked(steps).steps, 0);
  Reduce(steps, "a", 10);
  Reduce(steps, "a", 10);
  EXPECT_EQ(Asked(steps).steps, 1);
  EXPECT_EQ(Asked(steps).bytes, 10);
}

TEST(steps_forget_names_that_never_come_again) {
  Steps steps;
  Asked(steps);
  for (int i = 0; i < (1 << 16); ++i) Reduce(steps, std::to_string(i), 1);
  Reduce(steps, "0", 1);
  EXPECT_EQ(Asked(steps).steps, 0);
}

TEST(steps_are_known_also_of_those_that_nobody_asks_for) {
  Steps steps;
  int ended = 0;
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < 5000; ++i) ended += steps.Note(OpType::kAllreduce, 0, std::to_string(i), 1) ? 1 : 0;
  }
  EXPECT_EQ(ended, 2);
}

TEST(steps_wake_who_waits_for_them) {
  Steps steps;
  Asked(steps);
  Steps::Count count;
  std::thread waiter([&] { EXPECT_OK(steps.Await(2, 60, &count)); });
  for (int i = 0; i < 3; ++i) Reduce(steps, "a", 5);
  waiter.join();
  EXPECT(count.steps >= 2 && count.bytes >= 10);
}

TEST(steps_end_the_wait_when_time_or_the_engine_is_over) {
  Steps steps;
  Steps::Count count;
  EXPECT(steps.Await(1, 0.01, &count).code() == Code::kInProgress);
  std::thread waiter([&] { EXPECT(steps.Await(1, 60, &count).code() == Code::kShutdown); });
  steps.Close();
  waiter.join();
  EXPECT(steps.Await(1, 60, &count).code() == Code::kShutdown);
}

}  // namespace hvd::test::engine_steps
