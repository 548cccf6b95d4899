// Where the tests are compiled with libstdc++, as TensorFlow is: its own types and those of gnu.h are the same memory.
#include "frameworks/tensorflow/gnu.h"

#include <new>
#include <optional>
#include <string>

#include "border/border.h"
#include "native/harness/harness.h"
#include "native/harness/scarce_memory.h"

namespace hvd::test::frameworks_tensorflow_gnu {
namespace {

using frameworks::tensorflow::GnuOptionalString;
using frameworks::tensorflow::GnuOptionalView;
using frameworks::tensorflow::GnuString;
using frameworks::tensorflow::GnuToRead;

static_assert(!kLibstdcxx || sizeof(GnuString) == sizeof(std::string));
static_assert(!kLibstdcxx || sizeof(GnuOptionalString) == sizeof(std::optional<std::string>));
static_assert(!kLibstdcxx || sizeof(GnuOptionalView) == sizeof(std::optional<std::string_view>));

const std::string kShort = "Host", kLong = "a name of more than fifteen characters";

TEST(tensorflow_gnu_strings_are_read) {
  if (!kLibstdcxx) return Skip("needs libstdc++");
  for (const std::string& text : {kShort, kLong}) {
    const GnuString own = GnuToRead(text);
    const std::string copy(*reinterpret_cast<const std::string*>(&own));
    EXPECT_EQ(copy, text);
  }
}

TEST(tensorflow_gnu_message_is_read_and_freed_by_the_other_side) {
  if (!kLibstdcxx) return Skip("needs libstdc++");
  for (const std::string& text : {kShort, kLong}) {
    std::optional<std::string> theirs;
    EXPECT(!reinterpret_cast<const GnuOptionalString*>(&theirs)->has_value);
    EXPECT(reinterpret_cast<GnuOptionalString*>(&theirs)->Set(text, &::operator new));
    EXPECT(theirs == text);
  }
}

TEST(tensorflow_gnu_message_without_memory_is_short) {
  if (!kLibstdcxx) return Skip("needs libstdc++");
  const ScarceMemory scarce(0, /*lasting=*/true);
  std::optional<std::string> theirs;
  EXPECT(!reinterpret_cast<GnuOptionalString*>(&theirs)->Set(kLong, &::operator new));
  EXPECT(!theirs);
  EXPECT(reinterpret_cast<GnuOptionalString*>(&theirs)->Set(border::kNoMemory, &::operator new));
  EXPECT(theirs == border::kNoMemory);
}

TEST(tensorflow_gnu_view) {
  if (!kLibstdcxx) return Skip("needs libstdc++");
  std::optional<std::string_view> theirs;
  const auto& own = *reinterpret_cast<const GnuOptionalView*>(&theirs);
  EXPECT(!(own == ""));
  theirs = kLong;
  EXPECT(own == kLong);
  EXPECT(!(own == kShort));
}

}  // namespace
}  // namespace hvd::test::frameworks_tensorflow_gnu
