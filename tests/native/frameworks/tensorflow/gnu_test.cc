// The tests are compiled with libstdc++, as TensorFlow is: its own types and those of gnu.h are the same memory.
#include "frameworks/tensorflow/gnu.h"

#include <new>
#include <optional>
#include <string>

#include "native/harness/harness.h"

namespace hvd::test::frameworks_tensorflow_gnu {
namespace {

namespace gnu = frameworks::tensorflow::gnu;

static_assert(sizeof(gnu::String) == sizeof(std::string));
static_assert(sizeof(gnu::OptionalString) == sizeof(std::optional<std::string>));
static_assert(sizeof(gnu::OptionalView) == sizeof(std::optional<std::string_view>));

const std::string kShort = "Host", kLong = "a name of more than fifteen characters";

TEST(tensorflow_gnu_strings_are_read) {
  for (const std::string& text : {kShort, kLong}) {
    const gnu::String own = gnu::ToRead(text);
    const std::string copy(*reinterpret_cast<const std::string*>(&own));
    EXPECT_EQ(copy, text);
  }
}

TEST(tensorflow_gnu_message_is_read_and_freed_by_the_other_side) {
  for (const std::string& text : {kShort, kLong}) {
    std::optional<std::string> theirs;
    EXPECT(!reinterpret_cast<const gnu::OptionalString*>(&theirs)->has_value);
    reinterpret_cast<gnu::OptionalString*>(&theirs)->Set(text, [](size_t bytes) { return ::operator new(bytes); });
    EXPECT(theirs == text);
  }
}

TEST(tensorflow_gnu_view) {
  std::optional<std::string_view> theirs;
  const auto& own = *reinterpret_cast<const gnu::OptionalView*>(&theirs);
  EXPECT(!(own == ""));
  theirs = kLong;
  EXPECT(own == kLong);
  EXPECT(!(own == kShort));
}

}  // namespace
}  // namespace hvd::test::frameworks_tensorflow_gnu
