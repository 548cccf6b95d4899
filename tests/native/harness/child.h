// Another process for a test to look at.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hvd::test {

// Lives, doing nothing, until the end of the scope, or of the tests.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (pid_ == 0) pause();
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

}  // namespace hvd::test
