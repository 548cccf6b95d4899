// What the names of a TensorFlow tell of the C++ library that it was compiled with.
#include "frameworks/tensorflow/standard_library.h"

#include "native/harness/harness.h"

namespace hvd::test::frameworks_tensorflow_standard_library {
namespace {

using frameworks::tensorflow::ProblemWithStandardLibrary;

// The name in TensorFlow 2.13 to 2.21, up to the callback's type.
const std::string kDevice = "_ZN10tensorflow6Device12ComputeAsyncEPNS_13AsyncOpKernelEPNS_15OpKernelContextE";
const std::string kGnus = "St8functionIFvvEE", kLlvms = "NSt3__18functionIFvvEEE";

std::string Table(const std::vector<std::string>& names) {
  std::string table(1, '\0');  // as every table of dynamic strings begins
  for (const std::string& name : names) table += name + '\0';
  return table;
}

void ExpectRefused(const std::string& table, const std::string& words) {
  const std::string problem = ProblemWithStandardLibrary(table);
  if (problem.find(words) == std::string::npos) Fail(__FILE__, __LINE__, words + " is not in: " + problem);
}

TEST(tensorflow_standard_library_is_gnus) {
  EXPECT_EQ(ProblemWithStandardLibrary(Table({"_Znwm", kDevice + kGnus, "malloc"})), "");
  EXPECT_EQ(ProblemWithStandardLibrary(kDevice + kGnus), "");  // first and last at once
}

TEST(tensorflow_standard_library_is_another) {
  ExpectRefused(Table({"_Znwm", kDevice + kLlvms}), "(" + kDevice + kLlvms + ")");
  ExpectRefused(Table({kDevice + "NSt6__ndk18functionIFvvEEE"}), "is compiled with libstdc++");
  // Where both meet in one library, nobody knows which one the kernels' is.
  ExpectRefused(Table({kDevice + kGnus, kDevice + kLlvms}), kLlvms);
  // Another type of callback.
  ExpectRefused(Table({kDevice + "N4absl12AnyInvocableIFvvEEE"}), "AnyInvocable");
}

TEST(tensorflow_standard_library_is_not_named) {
  ExpectRefused("", "none of its symbols");
  // Names of other functions, and of what lies in this one.
  ExpectRefused(Table({"_ZN3foo12ComputeAsyncEv", "_ZSt8functionIFvvEE"}), "shows its names");
  ExpectRefused(Table({"_ZZN" + kDevice.substr(3) + kGnus + "E4here"}), "shows its names");
}

}  // namespace
}  // namespace hvd::test::frameworks_tensorflow_standard_library
