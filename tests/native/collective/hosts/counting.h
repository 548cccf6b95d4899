// Who sends how much to whom: channels that count.
#pragma once

#include <memory>
#include <vector>

#include "collective/batch.h"
#include "transport/channel.h"

namespace hvd::test {

class CountingChannel final : public transport::Channel {
 public:
  CountingChannel(transport::Channel* channel, size_t* bytes) : channel_(channel), bytes_(bytes) {}
  Result<size_t> Write(std::span<const std::byte> bytes) override {
    Result<size_t> n = channel_->Write(bytes);
    *bytes_ += *n;
    return n;
  }
  Result<size_t> Read(std::span<std::byte> bytes) override { return channel_->Read(bytes); }
  int peer() const override { return channel_->peer(); }
  const char* kind() const override { return channel_->kind(); }

 private:
  transport::Channel* channel_;
  size_t* bytes_;
};

// (*to)[m] rises by what the group's member sends to member m. The result lives as long as the group is used.
inline std::vector<std::unique_ptr<CountingChannel>> Count(collective::Group* group, std::vector<size_t>* to) {
  std::vector<std::unique_ptr<CountingChannel>> counting;
  to->assign(group->channels.size(), 0);
  for (size_t m = 0; m < group->channels.size(); ++m) {
    if (group->channels[m] == nullptr) continue;
    counting.push_back(std::make_unique<CountingChannel>(group->channels[m], &(*to)[m]));
    group->channels[m] = counting.back().get();
  }
  return counting;
}

}  // namespace hvd::test
