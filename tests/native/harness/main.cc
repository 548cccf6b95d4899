// Runs the registered tests; see harness.h.
#include <algorithm>
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

namespace {
using hvd::test::Case;

bool Passes(const Case& c) {
  hvd::test::failures_in_case = 0;
  std::cerr << "[ run  ] " << c.name << std::endl;
  c.body();
  if (hvd::test::failures_in_case > 0) std::cerr << "[FAILED] " << c.name << std::endl;
  return hvd::test::failures_in_case == 0;
}
}  // namespace

int main(int argc, char** argv) {
  const bool once_more = argc > 1 && std::strcmp(argv[1], "--once-more") == 0;
  const std::vector<const char*> filters(argv + 1 + once_more, argv + argc);
  const auto asked_for = [&filters](const char* name) {
    bool asked = filters.empty() || filters[0][0] == '-';
    for (const char* filter : filters) {
      const bool excludes = *filter == '-';
      if (std::strstr(name, filter + excludes) != nullptr) asked = !excludes;
    }
    return asked;
  };
  int passed = 0;
  std::vector<Case> failed;
  for (const Case& c : hvd::test::Cases()) {
    if (!asked_for(c.name)) continue;
    if (Passes(c)) {
      ++passed;
    } else {
      failed.push_back(c);
    }
  }
  // The last lines name what failed: of a long output often only the end is kept.
  for (const Case& c : failed) std::cout << (once_more ? "FAILED ONCE: " : "FAILED: ") << c.name << std::endl;
  if (once_more) {
    const auto passes = std::stable_partition(failed.begin(), failed.end(), [](const Case& c) { return !Passes(c); });
    passed += static_cast<int>(failed.end() - passes);
    failed.erase(passes, failed.end());
    for (const Case& c : failed) std::cout << "FAILED TWICE: " << c.name << std::endl;
  }
  std::cout << passed << " passed, " << failed.size() << " failed" << std::endl;
  return failed.empty() && passed > 0 ? 0 : 1;
}
