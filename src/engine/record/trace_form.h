// TraceForm: how events become elements of a Chrome trace. There are two: TensorForm shows what rank 0 sees, a process
// for each tensor; RankForm shows one rank of many as a process, with a thread for each tensor. Used by a timeline's
// writer.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "engine/record/device_rows.h"
#include "engine/record/trace_event.h"

namespace hvd::engine {

class TraceForm {
 public:
  virtual ~TraceForm() = default;
  virtual void Render(const TraceEvent& event, TraceText* out) = 0;
  virtual void Render(const DeviceRows::Shown& phase, TraceText* out) = 0;
  // Now and then, and when the trace ends.
  virtual void Look(int64_t now_us, bool last, TraceText* out) { (void)now_us, (void)last, (void)out; }
  // n events of a rank are missing: this one, or one whose text goes through this one.
  virtual void Lack(int rank, uint64_t n, int64_t now_us, TraceText* out) = 0;
  // The clock of the events minus that of the trace. error_us < 0: it is not known.
  virtual void SetClock(int64_t offset_us, int64_t error_us, TraceText* out) {
    (void)offset_us, (void)error_us, (void)out;
  }
};

// "[512,64]"
std::string ShapeJson(const std::vector<int64_t>& shape);
// As JSON, with its quotes.
void AppendQuoted(std::string_view text, std::string* out);

// Numbers and texts one behind the other: most of what a writer does.
inline void AppendAll(std::string* out) { (void)out; }
template <class First, class... Rest>
void AppendAll(std::string* out, const First& first, const Rest&... rest) {
  if constexpr (std::integral<First> && !std::same_as<First, char>) {
    char digits[24];
    out->append(digits, std::to_chars(digits, digits + sizeof digits, first).ptr);
  } else {
    *out += first;
  }
  AppendAll(out, rest...);
}

}  // namespace hvd::engine
