// Threads of the core never run the program's signal handlers: Ctrl-C must reach a thread that can act on it.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/status.h"

namespace hvd {

// A thread that runs body() with every signal blocked; the caller's own signals are as before, also on failure. `what`
// it is, for the message: "the engine's thread".
Result<std::thread> StartThread(const std::string& what, std::function<void()> body);

}  // namespace hvd
