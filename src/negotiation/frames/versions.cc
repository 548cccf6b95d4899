#include "negotiation/frames/versions.h"

#include <algorithm>
#include <utility>

namespace hvd::negotiation {

bool Versions::Heard(int source, uint64_t version) {
  if (version < sent_at_[source] || version > now_) return false;
  sent_at_[source] = version;
  return true;
}

void Versions::Drop(Void what) {
  const uint64_t oldest = sent_at_.size() == 1 ? now_ : *std::min_element(sent_at_.begin() + 1, sent_at_.end());
  std::erase_if(dropped_, [&](const Void& d) { return d.version <= oldest; });
  dropped_.push_back(std::move(what));
}

bool Versions::Dropped(int source, NameView key, uint64_t group_hash) const {
  return std::any_of(dropped_.begin(), dropped_.end(), [&](const Void& d) {
    if (d.process_set != key.set || d.version <= sent_at_[source]) return false;
    return d.hash != 0 ? d.hash == group_hash : d.name == key.name;
  });
}

}  // namespace hvd::negotiation
