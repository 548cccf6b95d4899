// Runs the registered tests; see harness.h.
#include <cstring>
#include <mutex>

#include "native/harness/harness.h"

namespace hvd::test {
namespace {
std::mutex mutex;
int failures_in_case = 0;
}  // namespace

std::vector<Case>& Cases() {
  static auto* const kCases = new std::vector<Case>;
  return *kCases;
}

void Fail(const char* file, int line, const std::string& what) {
  std::lock_guard<std::mutex> lock(mutex);
  if (++failures_in_case <= 20) std::cerr << "  " << file << ":" << line << ": " << what << std::endl;
}
}  // namespace hvd::test

int main(int argc, char** argv) {
  using namespace hvd::test;
  const char* filter = argc > 1 ? argv[1] : "";
  int passed = 0, failed = 0;
  for (const Case& c : Cases()) {
    if (std::strstr(c.name, filter) == nullptr) continue;
    failures_in_case = 0;
    std::cerr << "[ run  ] " << c.name << std::endl;
    c.body();
    if (failures_in_case == 0) {
      ++passed;
    } else {
      ++failed;
      std::cerr << "[FAILED] " << c.name << std::endl;
    }
  }
  std::cout << passed << " passed, " << failed << " failed" << std::endl;
  return failed == 0 && passed > 0 ? 0 : 1;
}
