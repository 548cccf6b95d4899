// What the system refuses for want of something, as a Status that names the limit and who can raise it.
#pragma once

#include <string>

#include "base/status.h"

namespace hvd {

// `what` could not be done: the system answered `error`. kResource when a limit or a shortage is the reason, else
// kInternal.
Status SystemFailure(const std::string& what, int error);
// The same for a thread, where EAGAIN is not "try again" but a limit.
Status ThreadFailure(const std::string& what, int error);

}  // namespace hvd
