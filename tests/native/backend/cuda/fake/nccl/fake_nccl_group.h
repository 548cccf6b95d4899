// The communicators of this process by their handles, and groups of calls.
#pragma once

#include <functional>
#include <memory>

#include "native/backend/cuda/fake/nccl/fake_nccl_comm.h"

namespace fake {

void* Register(const std::shared_ptr<Comm>& comm);
// Null, and a counted fault: there is none any more.
std::shared_ptr<Comm> Find(void* handle);
// Null also while it is in progress, which is not a fault.
std::shared_ptr<Comm> FindReady(void* handle);
void Forget(void* handle);
// The sum of something over all.
int Communicators(const std::function<int(const Comm&)>& of);

// Does it when the group of this thread ends; now, if there is none.
int AtGroupEnd(std::function<int()> what);
// Its state then.
int WaitWhileInProgress(const Comm& comm);

}  // namespace fake
