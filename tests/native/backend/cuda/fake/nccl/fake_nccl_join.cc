// How the members of a communicator come together.
#include <cstdio>
#include <cstring>
#include <thread>

#include "native/backend/cuda/fake/nccl/fake_nccl_comm.h"

namespace fake {
namespace {

// The GPUs of two members are one: as NCCL, it does not work with that.
bool SameGpu(Comm& comm) {
  for (int a = 0; a < comm.size; ++a) {
    for (int b = a + 1; b < comm.size; ++b) {
      const Showcase &first = comm.meeting->members[a], &second = comm.meeting->members[b];
      if (std::memcmp(first.uuid, second.uuid, sizeof first.uuid) != 0) continue;
      char words[120];
      std::snprintf(words, sizeof words, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x", a, b,
                    0x1000 * (first.device + 1));
      Error(kInvalidUsage, words);
      return true;
    }
  }
  return false;
}

int Meet(Comm& comm) {
  comm.meeting = OpenMeeting(comm.id);
  if (comm.meeting == nullptr) return Error(kSystemError, "nobody waits under this unique id");
  Showcase& mine = comm.meeting->members[comm.rank];
  uint32_t nobody = 0;
  // 1: somebody is writing; 2: is there
  if (!mine.joined.compare_exchange_strong(nobody, 1)) {
    Fault("two members of a communicator say that they are rank " + std::to_string(comm.rank));
    return Error(kInvalidUsage, "this rank is there already");
  }
  mine.size = comm.size;
  mine.device = comm.device;
  std::memcpy(mine.uuid, comm.uuid, sizeof mine.uuid);
  mine.joined = 2;
  Ring(*comm.meeting);
  for (int m = 0; m < comm.size; ++m) {
    const Showcase& other = comm.meeting->members[m];
    if (!Await(*comm.meeting, [&] { return other.joined == 2; }, [&] { return comm.GivenUp(); }))
      return Error(kInvalidUsage, "aborted");
    if (other.size == comm.size) continue;
    Fault("members of a communicator differ about its size");
    return Error(kInvalidUsage, "members differ about the size");
  }
  CloseDoor(comm.id);
  static const long kMs = Number("FAKE_NCCL_INIT_MS", 10);
  std::this_thread::sleep_for(std::chrono::milliseconds(kMs));
  return SameGpu(comm) ? kInvalidUsage : kSuccess;
}

}  // namespace

void Join(const std::shared_ptr<Comm>& comm) { comm->state = Meet(*comm); }

std::string IdOfDuplicate(Comm& comm) {
  Meeting& meeting = *comm.meeting;
  if (comm.rank == 0) {
    if (meeting.has_duplicate != 0) Fault("a communicator is split twice, which this fake does not know");
    std::snprintf(meeting.duplicate, sizeof meeting.duplicate, "%s", MakeMeeting().c_str());
    meeting.has_duplicate = 1;
    Ring(meeting);
  }
  const bool come = Await(meeting, [&] { return meeting.has_duplicate == 1; }, [&] { return comm.aborted.load(); });
  return come ? meeting.duplicate : "";
}

}  // namespace fake
