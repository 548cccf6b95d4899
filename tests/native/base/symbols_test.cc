// Libraries that are opened at run time.
#include "base/symbols.h"

#include <dlfcn.h>

#include "native/harness/harness.h"

namespace hvd::test::base_symbols {
namespace {

TEST(symbols_are_called_by_their_names) {
  const Result<void*> opened = OpenLibrary("libm.so.6", RTLD_LOCAL);
  EXPECT_OK(opened.status());
  Symbols symbols(*opened);
  const Imported<double(double)> root(symbols, "sqrt");
  EXPECT(root && symbols.missing().empty());
  EXPECT_EQ(root(16.0), 4.0);
  EXPECT_EQ(std::string(root.name()), "sqrt");
}

TEST(symbols_tell_the_first_that_is_missing) {
  const Result<void*> opened = OpenLibrary("libm.so.6", RTLD_LOCAL);
  Symbols symbols(*opened);
  EXPECT(symbols.Find("no_function_at_all") == nullptr && symbols.missing().empty());
  const Imported<int()> first(symbols, "no_function"), second(symbols, "no_other_function");
  EXPECT(!first && !second);
  EXPECT_EQ(symbols.missing(), "no_function");
}

TEST(symbols_of_a_library_that_is_not_there) {
  const Status status = OpenLibrary("libno_library_at_all.so", RTLD_LOCAL).status();
  EXPECT(status.code() == Code::kBackendUnavailable);
  EXPECT(status.message().find("libno_library_at_all.so") != std::string::npos);
}

}  // namespace
}  // namespace hvd::test::base_symbols
