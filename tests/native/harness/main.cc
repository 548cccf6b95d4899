// Runs the registered tests; see harness.h.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "native/harness/harness.h"

namespace hvd::test {
namespace {
std::mutex mutex;
int failures_in_case = 0;
std::string why_skipped;
}  // namespace

std::vector<Case>& Cases() {
  static auto* const kCases = new std::vector<Case>;
  return *kCases;
}

void Fail(const char* file, int line, const std::string& what) {
  std::lock_guard<std::mutex> lock(mutex);
  if (++failures_in_case <= 20) std::cerr << "  " << file << ":" << line << ": " << what << std::endl;
}

void Skip(const std::string& why) { why_skipped = why; }

std::string Folder() { return std::filesystem::read_symlink("/proc/self/exe").parent_path(); }
}  // namespace hvd::test

namespace {
using hvd::test::Case;

// How a case went; of two runs the later.
struct Run {
  Case test;
  bool passed;
  double seconds;
  std::string why_skipped;  // empty: it was not
};

Run RunOf(const Case& c) {
  hvd::test::failures_in_case = 0;
  hvd::test::why_skipped = "";
  std::cerr << "[ run  ] " << c.name << std::endl;
  const auto start = std::chrono::steady_clock::now();
  c.body();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (hvd::test::failures_in_case > 0) std::cerr << "[FAILED] " << c.name << std::endl;
  return {c, hvd::test::failures_in_case == 0, took.count(),
          hvd::test::failures_in_case == 0 ? hvd::test::why_skipped : ""};
}

// The form that tools/report_times.py reads.
void WriteJunit(const char* path, const std::vector<Run>& runs, const std::vector<Case>& failed_at_first) {
  std::ofstream file(path);
  file << "<testsuite name=\"native\" tests=\"" << runs.size() << "\">\n";
  for (const Run& run : runs) {
    file << "<testcase classname=\"tests.native\" name=\"" << run.test.name << "\" time=\"" << run.seconds << "\">";
    const bool flaky = std::any_of(failed_at_first.begin(), failed_at_first.end(),
                                   [&](const Case& c) { return c.name == run.test.name; });
    file << (!run.passed ? "<failure/>" : flaky ? "<flakyFailure/>" : "");
    file << (run.why_skipped.empty() ? "" : "<skipped/>") << "</testcase>\n";
  }
  file << "</testsuite>\n";
}
}  // namespace

int main(int argc, char** argv) {
  bool once_more = false;
  const char* junit = nullptr;
  std::vector<const char*> filters;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--once-more") == 0) {
      once_more = true;
    } else if (std::strncmp(argv[i], "--junit=", 8) == 0) {
      junit = argv[i] + 8;
    } else {
      filters.push_back(argv[i]);
    }
  }
  const auto asked_for = [&filters](const char* name) {
    bool asked = filters.empty() || filters[0][0] == '-';
    for (const char* filter : filters) {
      const bool excludes = *filter == '-';
      if (std::strstr(name, filter + excludes) != nullptr) asked = !excludes;
    }
    return asked;
  };
  std::vector<Run> runs;
  for (const Case& c : hvd::test::Cases()) {
    if (asked_for(c.name)) runs.push_back(RunOf(c));
  }
  const auto failed_now = [](const Run& run) { return !run.passed; };
  for (const Run& run : runs) {
    if (!run.why_skipped.empty())
      std::cout << "skipped: " << run.test.name << " (" << run.why_skipped << ")" << std::endl;
  }
  // The last lines name what failed: of a long output often only the end is kept.
  std::vector<Case> failed;
  for (Run& run : runs) {
    if (run.passed) continue;
    failed.push_back(run.test);
    std::cout << (once_more ? "FAILED ONCE: " : "FAILED: ") << run.test.name << std::endl;
  }
  if (once_more) {
    for (Run& run : runs) {
      if (run.passed) continue;
      run = RunOf(run.test);
      if (!run.passed) std::cout << "FAILED TWICE: " << run.test.name << std::endl;
    }
  }
  if (junit != nullptr) WriteJunit(junit, runs, failed);
  const auto failures = std::count_if(runs.begin(), runs.end(), failed_now);
  const auto skipped = std::count_if(runs.begin(), runs.end(), [](const Run& run) { return !run.why_skipped.empty(); });
  std::cout << runs.size() - failures - skipped << " passed, " << failures << " failed" << std::endl;
  return failures == 0 && !runs.empty() ? 0 : 1;
}
