// NVTX ranges, as a profiler is told of them.
#include "engine/record/profiler_range.h"

#include <dlfcn.h>

#include <cstdlib>

#include "native/engine/fake/fake_profiler.h"
#include "native/harness/harness.h"

namespace hvd::test::engine_profiler_range {
namespace {

using engine::ProfilerRange;
using engine::ShowRangesBy;

const std::string& Profiler() {
  static const std::string kPath = Folder() + "/libfake_profiler.so";
  return kPath;
}

// What the profiler has been told since this was made.
class Told {
 public:
  Told() : begin_(All().size()) {}
  std::string text() const { return All().substr(begin_); }

 private:
  static std::string All() {
    void* const library = dlopen(Profiler().c_str(), RTLD_NOW);
    const auto ranges = reinterpret_cast<decltype(&fake_profiler_ranges)>(dlsym(library, "fake_profiler_ranges"));
    if (ranges == nullptr) return "";
    std::string text(static_cast<size_t>(ranges(nullptr, 0)) + 1, '\0');
    ranges(text.data(), static_cast<int>(text.size()));
    text.pop_back();
    return text;
  }
  const size_t begin_;
};

void Nested(int* asked) {
  const auto name = [asked](const char* text) {
    return [asked, text] {
      ++*asked;
      return std::string(text);
    };
  };
  const ProfilerRange outer(name("outer"));
  const ProfilerRange none(name(""));
  const ProfilerRange inner(name("inner"));
}

TEST(range_is_nothing_without_a_profiler) {
  const Told told;
  int asked = 0;
  for (const char* library : {static_cast<const char*>(nullptr), "", "/nowhere/libprofiler.so", "libc.so.6"}) {
    ShowRangesBy(library);
    Nested(&asked);
  }
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(told.text(), "");
}

TEST(range_is_nothing_if_the_profiler_does_not_want_it) {
  const Told told;
  // Each under a name of its own: who has attached once is not asked again.
  for (const char* how : {"refuse", "blind"}) {
    setenv("FAKE_PROFILER", how, 1);
    int asked = 0;
    ShowRangesBy((Folder() + "/./libfake_profiler.so").c_str());
    Nested(&asked);
    EXPECT_EQ(asked, 0);
  }
  unsetenv("FAKE_PROFILER");
  EXPECT_EQ(told.text(), "");
}

TEST(range_reaches_the_profiler) {
  const Told told;
  int asked = 0;
  ShowRangesBy(Profiler().c_str());
  Nested(&asked);
  EXPECT_EQ(told.text(), "1 outer\n2 inner\n2\n1\n");
  EXPECT_EQ(asked, 3);
  ShowRangesBy(nullptr);
  Nested(&asked);
  ShowRangesBy(Profiler().c_str());  // again, in the next life of a job
  Nested(&asked);
  EXPECT_EQ(told.text(), "1 outer\n2 inner\n2\n1\n1 outer\n2 inner\n2\n1\n");
  ShowRangesBy(nullptr);
}

}  // namespace
}  // namespace hvd::test::engine_profiler_range
