// Which runs of an operator of TensorFlow wait for one another, and which are refused.
#include "frameworks/tensorflow/turns.h"

#include "border/border.h"
#include "native/harness/harness.h"
#include "native/harness/scarce_memory.h"

namespace hvd::test::frameworks_tensorflow_turns {
namespace {

using frameworks::tensorflow::Turns;
using Answer = Turns::Answer;
using Where = Turns::Where;

constexpr uint64_t kLoop = 7;
const Turns::Names kName = {"allreduce.x@0"};

// Notes who has begun.
struct Begun {
  std::vector<std::pair<int64_t, Where>> runs;
  Turns::Begin Note(int64_t iteration) {
    return [this, iteration](Where where) { runs.emplace_back(iteration, where); };
  }
};

TEST(turns_iterations_follow_one_another) {
  Turns turns;
  Begun begun;
  // The later ones come in any order while the first is under way.
  for (const int64_t iteration : {0, 2, 3, 1}) {
    EXPECT(turns.Take(kName, {5, kLoop, iteration}, begun.Note(iteration)) == Answer::kGranted);
  }
  EXPECT(begun.runs.size() == 1);
  for (size_t i = 1; i < 4; ++i) {
    turns.GiveBack(kName);
    EXPECT(begun.runs.size() == i + 1);
    EXPECT(begun.runs[i] == std::make_pair(static_cast<int64_t>(i), Where::kElsewhere));
  }
  EXPECT(begun.runs[0] == std::make_pair(int64_t{0}, Where::kHere));
  turns.GiveBack(kName);
  // The next step, or the same again.
  EXPECT(turns.Take(kName, {5, kLoop, 0}, begun.Note(0)) == Answer::kGranted);
  EXPECT(begun.runs.back() == std::make_pair(int64_t{0}, Where::kHere));
}

TEST(turns_an_iteration_that_comes_too_late_is_refused) {
  Turns turns;
  Begun begun;
  EXPECT(turns.Take(kName, {5, kLoop, 4}, begun.Note(4)) == Answer::kGranted);
  EXPECT(turns.Take(kName, {5, kLoop, 3}, begun.Note(3)) == Answer::kOutOfOrder);
  turns.GiveBack(kName);
  EXPECT(begun.runs.size() == 1);
}

TEST(turns_other_runs_at_once_are_refused) {
  Turns turns;
  Begun begun;
  EXPECT(turns.Take(kName, {5, 0, 0}, begun.Note(0)) == Answer::kGranted);
  EXPECT(turns.Take(kName, {6, 0, 0}, begun.Note(1)) == Answer::kTwiceAtOnce);      // another step
  EXPECT(turns.Take(kName, {5, kLoop, 1}, begun.Note(2)) == Answer::kTwiceAtOnce);  // another place of this one
  turns.GiveBack(kName);
  EXPECT(turns.Take(kName, {5, kLoop, 0}, begun.Note(3)) == Answer::kGranted);
  EXPECT(turns.Take(kName, {6, kLoop, 1}, begun.Note(4)) == Answer::kTwiceAtOnce);      // the loop of another step
  EXPECT(turns.Take(kName, {5, kLoop + 1, 1}, begun.Note(5)) == Answer::kTwiceAtOnce);  // another loop
  turns.GiveBack(kName);
  EXPECT(begun.runs.size() == 2);
  EXPECT(turns.Take(kName, {6, 0, 0}, begun.Note(6)) == Answer::kGranted);  // nothing is left behind
}

TEST(turns_a_group_waits_for_all_its_names) {
  Turns turns;
  Begun begun;
  const Turns::Names one = {"a"}, two = {"b"}, both = {"a", "b"};
  EXPECT(turns.Take(one, {5, kLoop, 0}, begun.Note(0)) == Answer::kGranted);
  EXPECT(turns.Take(two, {5, kLoop, 0}, begun.Note(0)) == Answer::kGranted);
  EXPECT(turns.Take(both, {5, kLoop, 1}, begun.Note(1)) == Answer::kGranted);
  turns.GiveBack(one);
  EXPECT(begun.runs.size() == 2);
  turns.GiveBack(two);
  EXPECT(begun.runs.size() == 3);
}

TEST(turns_without_memory_nothing_is_taken_and_all_is_given_back) {
  bool refused = true;
  for (int64_t granted = 0; refused; ++granted) {
    Turns turns;
    Begun begun;
    begun.runs.reserve(10);
    const Turns::Names both = {"a name that is longer than a string holds in itself", kName[0]};
    EXPECT(turns.Take(kName, {5, kLoop, 0}, begun.Note(0)) == Answer::kGranted);
    {
      const ScarceMemory scarce(granted, /*lasting=*/true);
      refused = !border::Succeeds([&] { EXPECT(turns.Take(both, {5, kLoop, 1}, begun.Note(1)) == Answer::kGranted); });
      EXPECT_EQ(refused, scarce.met());
      turns.GiveBack(kName);
    }
    EXPECT_EQ(begun.runs.size(), refused ? 1u : 2u);
    if (!refused) turns.GiveBack(both);
    EXPECT(turns.Take(both, {6, 0, 0}, begun.Note(2)) == Answer::kGranted);  // nothing is left behind
  }
}

}  // namespace
}  // namespace hvd::test::frameworks_tensorflow_turns
