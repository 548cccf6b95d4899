// What a rank tells the members of a group of its device, before their first batch on devices, and what they conclude.
// The conclusion is pure, and the same on all members but for what says "own".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collective/batch.h"

namespace hvd::backend {

// NCCL's unique id of a communicator.
using NcclId = std::array<std::byte, 128>;

// Of one member. Plain bytes: all ranks of a job run one version of this library.
struct DeviceFacts {
  int32_t nccl_version = 0;               // 0: it has none
  int32_t streams = 1;                    // most communicators that it wants for one set
  int32_t max_ctas = 0;                   // of a communicator; 0: NCCL chooses
  int32_t no_device_yet = 0;              // 1: that is why it has none
  int32_t is_rccl = 0;                    // 1: its GPU is AMD's, and what is said of NCCL is said of RCCL
  int32_t ordinal = 0;                    // of its GPU among those that the driver shows it, from 0
  int32_t visible = 0;                    // how many the driver shows it
  char why_not[224] = {};                 // why it has none; cut off where it is longer
  std::array<std::byte, 16> device = {};  // the GPU's own number, which no two have, of AMD's no two of one host
  std::array<std::byte, 16> place = {};   // the GPU's on its host, by which NCCL tells GPUs apart
  NcclId across = {};                     // of member m < streams: for communicator m of the set
  NcclId inside = {};                     // of a host's first member: for the communicator of those there

  void SetWhyNot(const std::string& why);
};

// What the members have agreed upon for the tensors that lie on their devices. The reasons are equal on all members.
struct DeviceWay {
  std::string why_not_nccl;         // empty: NCCL moves them
  std::string why_not_inside;       // empty: NCCL can, inside every host, and all hosts have the same number of members
  bool for_now = false;             // a member had no device yet: the next batch on devices asks again
  int max_ctas = 0;                 // the least that a member wants; 0: NCCL chooses
  std::vector<NcclId> across = {};  // for each communicator of the set
  NcclId inside = {};               // for that of the members on the own host
  const char* library = "NCCL";     // of the first member that has a device: NCCL or RCCL
};

// The place in `group` of the first member on the host of member m.
int FirstOnHostOf(const collective::Group& group, int m);

DeviceWay Conclude(const std::vector<DeviceFacts>& facts, const collective::Group& group);

}  // namespace hvd::backend
