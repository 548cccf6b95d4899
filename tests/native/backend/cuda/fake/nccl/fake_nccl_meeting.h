// Where the members of a communicator meet: a file in shared memory, in which each has a place to show a piece of its
// data to all, and one for each other member. Threads of one process and of several alike.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace fake {

constexpr int kMostMembers = 32;
constexpr size_t kPieceBytes = size_t{256} << 10, kLetterBytes = size_t{32} << 10;

// What a collective is; equal on all members, or they have made a mistake.
struct Call {
  int32_t kind = 0, type = 0, op = 0, root = 0;
  uint64_t count = 0;
  bool operator==(const Call&) const = default;
};

// Of one member. All members see the pieces of all in the same steps.
struct Showcase {
  std::atomic<uint32_t> joined, left;
  int32_t size, device;
  unsigned char uuid[16];
  std::atomic<uint32_t> connections;  // how often it has begun to connect to the others
  std::atomic<uint64_t> shown, seen;  // steps: this member's pieces, and those of all that it has used
  Call call;
  uint64_t bytes;
  alignas(64) unsigned char piece[kPieceBytes];
};

// From one member to another.
struct Letterbox {
  std::atomic<uint64_t> sent, taken;  // letters; at most one is in it
  uint64_t message_bytes, bytes;      // of the whole message, of this letter
  alignas(64) unsigned char letter[kLetterBytes];
};

struct Meeting {
  std::atomic<uint32_t> bell;  // changes when anything does
  std::atomic<uint32_t> has_duplicate;
  char duplicate[128];  // the unique id of one with the same members
  Showcase members[kMostMembers];
  Letterbox letters[kMostMembers][kMostMembers];  // from, to
};

// The place of a new communicator, as the text of a unique id; empty: there is none.
std::string MakeMeeting();
// Null: it is not there.
std::shared_ptr<Meeting> OpenMeeting(const std::string& id);
// All members have it open.
void CloseDoor(const std::string& id);

void Ring(Meeting& meeting);
// Waits until `come` is true; false: until `leave` was first.
bool Await(Meeting& meeting, const std::function<bool()>& come, const std::function<bool()>& leave);

}  // namespace fake
