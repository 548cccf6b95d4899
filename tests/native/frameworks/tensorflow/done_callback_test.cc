// Where the tests are compiled with libstdc++, as TensorFlow is.
#include "frameworks/tensorflow/done_callback.h"

#include <array>
#include <functional>
#include <memory>
#include <optional>

#include "native/harness/harness.h"
#include "native/harness/scarce_memory.h"

namespace hvd::test::frameworks_tensorflow_done_callback {
namespace {

using frameworks::tensorflow::DoneCallback;

// Functions of this size, of which each counts its calls; `held` tells how many copies there are.
template <size_t kBytes>
void OutlivesTheOriginal() {
  int calls = 0;
  const auto held = std::make_shared<int>(0);
  std::array<char, kBytes> more = {};
  std::optional<std::function<void()>> theirs([&calls, held, more] { calls += 1 + more[0]; });
  {
    const ScarceMemory scarce(0, /*lasting=*/true);
    DoneCallback first(&*theirs);
    EXPECT(!*theirs);
    theirs.reset();
    EXPECT_EQ(held.use_count(), 2);
    const DoneCallback second(std::move(first));
    second();
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(tensorflow_done_callback_outlives_the_original) {
  if (!kLibstdcxx) return Skip("needs libstdc++");
  OutlivesTheOriginal<1>();
  OutlivesTheOriginal<100>();
}

int called = 0;

TEST(tensorflow_done_callback_of_what_fits_into_two_words) {
  if (!kLibstdcxx) return Skip("needs libstdc++");
  std::function<void()> function = [] { ++called; };
  int here = 0;
  std::function<void()> small = [&here] { ++here; };
  const DoneCallback first(&function), second(&small);
  first();
  second();
  EXPECT_EQ(called, 1);
  EXPECT_EQ(here, 1);
  const DoneCallback none(&function);  // it is empty by now
}

}  // namespace
}  // namespace hvd::test::frameworks_tensorflow_done_callback
