// Ahead: data that leaves for another member before it is known whether that one takes part (docs/design/
// 0012-payloads.md). Such a message has a number of its sender's on the connection, from 1. A sender has one operation
// under way when it sends one. So a rank that expects a number finds it behind lower ones, which are void, or set aside
// by a batch that found it in front of its own messages; and what is set aside is void when the next one is.
#pragma once

#include <cstdint>
#include <span>

#include "base/task.h"
#include "collective/channels/message.h"
#include "transport/channel.h"

namespace hvd::collective::channels {

inline constexpr size_t kMostAheadBytes = 1 << 20;

Status SendAhead(uint64_t number, std::span<const std::byte> data, transport::Channel* to);
// co_await: Status. Exactly to.size() bytes; number 0: none. Until what this rank has sent ahead has left, too.
Task ReceiveAhead(transport::Channel* from, uint64_t number, std::span<std::byte> to);

// For a batch that finds such a message where it expects its own: there is room for it in from->aside, which
// ReadAside fills. kInternal: it cannot be one.
Status BeginAside(const Fields& header, transport::Channel* from);
Result<size_t> ReadAside(transport::Channel* from);

}  // namespace hvd::collective::channels
