// Connections: what each rank has under way with each other one. A job of 16,384 ranks has 16 million of them in an
// alltoall, so an entry has 24 bytes, and messages that wait are in one store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace hvd::simulate {

struct Message {
  int from = 0, to = 0;
  uint32_t step = 0, segment = 0, bytes = 0;
};

// Messages that have arrived and are not read, in queues.
class Mailroom {
 public:
  struct Queue {
    uint32_t first = 0, last = 0;  // 0: it is empty
  };

  void Put(Queue* queue, const Message& message) {
    uint32_t at = free_;
    if (at != 0) {
      free_ = letters_[at].next;
      letters_[at] = {message, 0};
    } else {
      at = static_cast<uint32_t>(letters_.size());
      letters_.push_back({message, 0});
    }
    (queue->first == 0 ? queue->first : letters_[queue->last].next) = at;
    queue->last = at;
  }

  std::optional<Message> Take(Queue* queue) {
    const uint32_t at = queue->first;
    if (at == 0) return std::nullopt;
    queue->first = letters_[at].next;
    letters_[at].next = std::exchange(free_, at);
    return letters_[at].message;
  }

 private:
  struct Letter {
    Message message;
    uint32_t next = 0;
  };
  std::vector<Letter> letters_ = std::vector<Letter>(1);  // number 0 stands for none
  uint32_t free_ = 0;
};

// Those of one rank, by the other one: open addressing, at most half full.
class Connections {
 public:
  struct Connection {
    int peer = -1;
    bool across = false;          // a message has crossed hosts
    uint32_t unacknowledged = 0;  // bytes sent that have not arrived
    Mailroom::Queue inbox;
  };

  // Made if it is new. Valid until the next call.
  Connection& With(int peer) {
    if (2 * (used_ + 1) > table_.size()) Grow();
    Connection& found = Find(peer);
    used_ += std::exchange(found.peer, peer) < 0 ? 1 : 0;
    return found;
  }
  void CountAcross(Connection* connection) { across_ += std::exchange(connection->across, true) ? 0 : 1; }
  int across() const { return across_; }

 private:
  Connection& Find(int peer) {
    const size_t mask = table_.size() - 1;
    const uint32_t hash = static_cast<uint32_t>(peer) * 2654435769u;  // Knuth's: peers are often multiples of 16
    for (size_t i = hash >> shift_;; i = (i + 1) & mask) {
      if (table_[i].peer == peer || table_[i].peer < 0) return table_[i];
    }
  }
  void Grow() {
    const std::vector<Connection> old = std::exchange(table_, std::vector<Connection>(table_.size() * 2));
    --shift_;
    for (const Connection& c : old) {
      if (c.peer >= 0) Find(c.peer) = c;
    }
  }

  std::vector<Connection> table_ = std::vector<Connection>(8);
  int shift_ = 32 - 3;
  size_t used_ = 0;
  int across_ = 0;
};

}  // namespace hvd::simulate
