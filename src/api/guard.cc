#include "api/guard.h"

namespace hvd {
namespace {
std::string& Message() {
  // Leaked per thread on purpose: a callback may report after the thread's destructors began.
  thread_local auto* const message = new std::string;
  return *message;
}
}  // namespace

hvd_status Report(const Status& status) {
  if (!status.ok()) Message() = status.message();
  return static_cast<hvd_status>(status.code());
}

const char* LastError() { return Message().c_str(); }

}  // namespace hvd
