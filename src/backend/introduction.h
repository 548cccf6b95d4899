// What the members of a group have agreed upon for the tensors that lie on their devices.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace hvd::backend {

struct DeviceWay {
  std::string why_not_nccl;                 // equal on all members; empty: NCCL moves them
  std::array<std::byte, 128> nccl_id = {};  // what member 0 has made for their communicator
};

}  // namespace hvd::backend
