// Versions: which contributions are void. The version counts the log records that make contributions void. Every link
// carries the sender's version before its contributions, so a receiver knows which of them were sent before the sender
// obeyed such a record: what belongs to a process set that has ended, or to a group or name that failed before all had
// submitted it, does not count.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "negotiation/values/request.h"

namespace hvd::negotiation {

class Versions {
 public:
  explicit Versions(int sources) : sent_at_(sources, 0) {}

  uint64_t now() const { return now_; }
  // The log made something void. Returns the version from which on contributions count.
  uint64_t Next() { return ++now_; }

  // What comes from a child from here on was sent at this version. False: that cannot be.
  bool Heard(int source, uint64_t version);
  uint64_t sent_at(int source) const { return sent_at_[source]; }

  // Contributions to a group or a name that were sent before now() are void. Remembered until every link is past it.
  void DropGroup(int process_set, uint64_t hash) { Drop({process_set, hash, {}, now_}); }
  void DropName(NameView key) { Drop({key.set, 0, std::string(key.name), now_}); }
  // Whether that has happened to what comes from `source` now.
  bool Dropped(int source, NameView key, uint64_t group_hash) const;

 private:
  struct Void {
    int process_set;
    uint64_t hash;     // of a group, or 0
    std::string name;  // or empty
    uint64_t version;
  };
  void Drop(Void what);

  uint64_t now_ = 0;
  std::vector<uint64_t> sent_at_;  // per source; [0] is not used
  std::vector<Void> dropped_;
};

}  // namespace hvd::negotiation
