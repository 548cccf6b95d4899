// What the C interface keeps between calls, the only global of the library: the engine, held by a shared pointer so
// that a call under way outlives a concurrent shutdown.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "engine/engine.h"

namespace hvd::api {

// Leaked on purpose: a thread may still call in while static destructors run.
struct Library {
  const bool forked;   // this process is a child of one that had called hvd_init
  std::mutex life{};   // serialises hvd_init and hvd_shutdown
  std::mutex mutex{};  // guards engine
  std::shared_ptr<engine::Engine> engine{};
  std::atomic<engine::Engine*> to_detach{nullptr};                    // the same, for InForkedChild
  std::mutex heaps_mutex{};                                           // guards heaps
  std::map<void*, std::shared_ptr<transport::ResidentHeap>> heaps{};  // by allocation; keeps the region mapped
};

Library& Lib();
// Null: hvd_init has not been called, or not in this process.
std::shared_ptr<engine::Engine> Current();
Status NotInitialized();

// For pthread_atfork.
void BeforeFork() noexcept;
void InForkingParent() noexcept;
void InForkedChild() noexcept;

}  // namespace hvd::api
