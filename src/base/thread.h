// Threads of the core never run the program's signal handlers: Ctrl-C must reach a thread that can act on it.
#pragma once

#include <csignal>
#include <thread>

namespace hvd {

// Runs make() -> std::thread with every signal blocked, so that the new thread inherits that.
template <class F>
std::thread WithoutSignals(F make) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread = make();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace hvd
