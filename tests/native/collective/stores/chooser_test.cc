// StoreChooser: tries both modes, keeps the faster one, looks again now and then.
#include "collective/stores/chooser.h"

#include "native/harness/harness.h"

namespace hvd::test::collective_stores_chooser {
namespace {

using namespace hvd::collective;
using Use = StoreChooser::Use;
using Setting = StoreChooser::Setting;
constexpr size_t kBytes = 1 << 20;

// Runs `batches` batches in a machine where a mode takes so long; returns how many of them were ordinary.
int Play(StoreChooser& chooser, int batches, double ordinary_ns, double streaming_ns, Use use = Use::kAllreduce,
         size_t bytes = kBytes) {
  int ordinary = 0;
  for (int i = 0; i < batches; ++i) {
    const StoreMode mode = chooser.Decide(use, bytes);
    ordinary += mode == StoreMode::kOrdinary;
    chooser.Record(use, bytes, mode, mode == StoreMode::kOrdinary ? ordinary_ns : streaming_ns);
  }
  return ordinary;
}

TEST(store_chooser_small_batches_are_ordinary) {
  StoreChooser chooser(Setting::kMeasure);
  EXPECT_EQ(Play(chooser, 100, 9, 1, Use::kAllreduce, StoreChooser::kMeasuredBytes - 1), 100);
}

TEST(store_chooser_pinned) {
  StoreChooser ordinary(Setting::kOrdinary), streaming(Setting::kStreaming);
  EXPECT_EQ(Play(ordinary, 20, 9, 1), 20);
  EXPECT_EQ(Play(streaming, 20, 1, 9), 0);
  EXPECT(ordinary.Learned(kBytes) == StoreMode::kOrdinary);
  EXPECT(streaming.Learned(1) == StoreMode::kStreaming);
}

TEST(store_chooser_tries_both_then_keeps_the_faster) {
  StoreChooser chooser(Setting::kMeasure);
  EXPECT_EQ(Play(chooser, StoreChooser::kFirstTrials, 100, 200), static_cast<int>(StoreChooser::kFirstTrials / 2));
  EXPECT_EQ(Play(chooser, 50, 100, 200), 50);
  EXPECT(chooser.Learned(kBytes) == StoreMode::kOrdinary);
  StoreChooser other(Setting::kMeasure);
  Play(other, StoreChooser::kFirstTrials, 200, 100);
  EXPECT_EQ(Play(other, 50, 200, 100), 0);
}

TEST(store_chooser_streams_when_in_doubt) {
  StoreChooser chooser(Setting::kMeasure);
  EXPECT(chooser.Learned(kBytes) == StoreMode::kStreaming);
  Play(chooser, StoreChooser::kFirstTrials, 99, 100);
  EXPECT_EQ(Play(chooser, 50, 99, 100), 0);
}

TEST(store_chooser_says_what_is_measured) {
  StoreChooser chooser(Setting::kMeasure), pinned(Setting::kStreaming);
  EXPECT(!chooser.IsMeasured(Use::kBroadcast, kBytes));  // not asked yet
  chooser.Decide(Use::kBroadcast, kBytes);
  pinned.Decide(Use::kBroadcast, kBytes);
  chooser.Decide(Use::kBroadcast, StoreChooser::kMeasuredBytes - 1);
  EXPECT(chooser.IsMeasured(Use::kBroadcast, kBytes));
  EXPECT(!pinned.IsMeasured(Use::kBroadcast, kBytes));
  EXPECT(!chooser.IsMeasured(Use::kBroadcast, StoreChooser::kMeasuredBytes - 1));
  Play(chooser, StoreChooser::kFirstTrials, 100, 200, Use::kBroadcast);  // one more than are tried
  EXPECT(!chooser.IsMeasured(Use::kBroadcast, kBytes));
}

TEST(store_chooser_one_slow_batch_does_not_decide) {
  StoreChooser chooser(Setting::kMeasure);
  for (uint32_t i = 0; i < StoreChooser::kFirstTrials; ++i) {
    const StoreMode mode = chooser.Decide(Use::kAllreduce, kBytes);
    const bool disturbed = i == StoreChooser::kFirstTrials - 1;  // an ordinary one
    chooser.Record(Use::kAllreduce, kBytes, mode, disturbed ? 1e6 : mode == StoreMode::kOrdinary ? 100 : 200);
  }
  EXPECT_EQ(Play(chooser, 10, 100, 200), 10);
}

TEST(store_chooser_notices_a_change) {  // the virtual cores moved apart
  StoreChooser chooser(Setting::kMeasure);
  Play(chooser, StoreChooser::kPeriod, 100, 200);
  EXPECT(chooser.Learned(kBytes) == StoreMode::kOrdinary);
  Play(chooser, StoreChooser::kLaterTrials, 400, 200);
  EXPECT(chooser.Learned(kBytes) == StoreMode::kStreaming);
  EXPECT_EQ(Play(chooser, StoreChooser::kPeriod - StoreChooser::kLaterTrials, 400, 200), 0);
}

TEST(store_chooser_results_are_streamed_only_where_that_wins) {
  constexpr auto kUse = Use::kAllreduceResults;
  constexpr size_t kLarge = StoreChooser::kMeasuredResults;
  constexpr int kTrials = StoreChooser::kFirstTrials;
  StoreChooser chooser(Setting::kMeasure);
  EXPECT_EQ(Play(chooser, 100, 9, 1, kUse, kLarge - 1), 100);          // they fit a cache
  EXPECT_EQ(Play(chooser, kTrials, 200, 100, kUse, kLarge), kTrials);  // shared memory is tried first
  EXPECT_EQ(Play(chooser, kTrials, 200, 100, kUse, kLarge), kTrials / 2);
  EXPECT_EQ(Play(chooser, 50, 200, 100, kUse, kLarge), 0);
  StoreChooser of_four(Setting::kMeasure, kLarge / 4);  // who share the cache
  EXPECT_EQ(Play(of_four, 100, 9, 1, kUse, kLarge / 4 - 1), 100);
  Play(of_four, 2 * kTrials, 200, 100, kUse, kLarge / 4);
  EXPECT_EQ(Play(of_four, 50, 200, 100, kUse, kLarge / 4), 0);
  StoreChooser other(Setting::kMeasure);
  Play(other, 2 * kTrials, 100, 99, kUse, kLarge);
  EXPECT_EQ(Play(other, 50, 100, 99, kUse, kLarge), 50);
}

TEST(store_chooser_sizes_and_uses_are_apart) {
  StoreChooser chooser(Setting::kMeasure);
  Play(chooser, 20, 100, 200);
  EXPECT_EQ(Play(chooser, StoreChooser::kFirstTrials, 300, 200, Use::kAllreduce, 64 * kBytes),
            static_cast<int>(StoreChooser::kFirstTrials / 2));
  EXPECT_EQ(Play(chooser, StoreChooser::kFirstTrials, 300, 200, Use::kResident),
            static_cast<int>(StoreChooser::kFirstTrials / 2));
  EXPECT_EQ(Play(chooser, 20, 300, 200, Use::kResident), 0);
  EXPECT_EQ(Play(chooser, 20, 100, 200), 20);
}

}  // namespace
}  // namespace hvd::test::collective_stores_chooser
