#include "base/thread.h"

#include <csignal>
#include <system_error>

#include "base/limits.h"

namespace hvd {
namespace {

// A new thread inherits the mask of the one that makes it.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

Result<std::thread> StartThread(const std::string& what, std::function<void()> body) {
  const AllSignalsBlocked blocked;
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return ThreadFailure("cannot start " + what, error.code().value());
  }
}

}  // namespace hvd
