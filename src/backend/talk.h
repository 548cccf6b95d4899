// What the members of a group tell one another over the host's ways about a batch that goes another way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace hvd::backend {

// all = what every member passed, one after the other; the same number of bytes from each. A batch of number `seq`, run
// by `host`.
Task TellAll(Backend& host, const Group& group, uint64_t seq, std::span<const std::byte> mine,
             std::vector<std::byte>* all);

// What each member has for each: part m of `mine` goes to member m, and part m of `theirs` came from it.
Task TellEach(Backend& host, const Group& group, uint64_t seq, std::span<const std::byte> mine,
              std::vector<std::byte>* theirs);

}  // namespace hvd::backend
