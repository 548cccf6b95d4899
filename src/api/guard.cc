#include "api/guard.h"

namespace hvd::api {
namespace {

// What this thread's last failed call said. A callback may still report while the thread's other objects are being
// destroyed; whatever comes after this one's own end is dropped.
struct LastMessage {
  ~LastMessage() { gone = true; }
  std::string text;
  static thread_local bool gone;  // has no destructor, so it may be read until the thread's very end
};
thread_local bool LastMessage::gone = false;
thread_local LastMessage last;

}  // namespace

hvd_status Report(hvd_status code, const char* text) noexcept {
  if (LastMessage::gone) return code;
  border::Guarded([&] { last.text = text; }, [](hvd_status, const char* why) { last.text = why; });
  return code;
}

const char* LastError() { return LastMessage::gone ? "" : last.text.c_str(); }

}  // namespace hvd::api
