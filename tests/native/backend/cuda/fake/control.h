// What tests control in a fake library: which calls fail, and the count of the mistakes of whoever uses it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace fake {

inline long Number(const char* variable, long otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == 0 ? otherwise : std::atol(text);
}

// Copies text to a caller, cut off where there is no room. Returns its whole length.
inline int Give(const std::string& from, char* text, int bytes) {
  if (bytes > 0) {
    const size_t n = std::min<size_t>(from.size(), static_cast<size_t>(bytes) - 1);
    std::memcpy(text, from.data(), n);
    text[n] = 0;
  }
  return static_cast<int>(from.size());
}

// Any thread.
class Control {
 public:
  // `variable`: of the environment; "cuInit:100,cuMemAlloc_v2:2" has these functions always fail.
  explicit Control(const char* variable) {
    const char* text = std::getenv(variable);
    std::string rest = text == nullptr ? "" : text;
    while (!rest.empty()) {
      const std::string one = rest.substr(0, rest.find(','));
      rest.erase(0, std::min(rest.size(), one.size() + 1));
      const size_t colon = one.find(':');
      if (colon != std::string::npos) fails_[one.substr(0, colon)] = std::atoi(one.c_str() + colon + 1);
    }
  }
  // The code with which this call is to fail; 0: it is not.
  int FailureOf(const char* function) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = fails_.find(function); found != fails_.end()) return found->second;
    const auto found = fails_next_.find(function);
    if (found == fails_next_.end()) return 0;
    const int code = found->second;
    fails_next_.erase(found);
    return code;
  }
  void FailNext(const char* function, int code) {
    std::lock_guard<std::mutex> lock(mutex_);
    fails_next_.erase(function);
    if (code != 0) fails_next_[function] = code;
  }
  void Fault(const std::string& what) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++faults_;
    last_ = what;
  }
  int faults() {
    std::lock_guard<std::mutex> lock(mutex_);
    return faults_;
  }
  std::string last_fault() {
    std::lock_guard<std::mutex> lock(mutex_);
    return last_;
  }

 private:
  std::mutex mutex_;  // guards all of this
  std::map<std::string, int> fails_, fails_next_;
  int faults_ = 0;
  std::string last_;
};

}  // namespace fake
