// What a rank tells the members of a group of its device, before their first batch on devices, and what they conclude.
// The conclusion is pure, and the same on all members.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hvd::backend {

// Of one member. Plain bytes: all ranks of a job run one version of this library.
struct DeviceFacts {
  int32_t nccl_version = 0;                 // 0: it has none
  char why_not[236] = {};                   // then: why; cut off where it is longer
  std::array<std::byte, 16> device = {};    // the GPU's own number, which no two have
  std::array<std::byte, 128> nccl_id = {};  // for the communicator, of member 0

  void SetWhyNot(const std::string& why);
};

// What the members have agreed upon for the tensors that lie on their devices.
struct DeviceWay {
  std::string why_not_nccl;  // equal on all members; empty: NCCL moves them
  std::array<std::byte, 128> nccl_id = {};
};

// `ranks`: the members' global ranks, for the words.
DeviceWay Conclude(const std::vector<DeviceFacts>& facts, const std::vector<int>& ranks);

}  // namespace hvd::backend
