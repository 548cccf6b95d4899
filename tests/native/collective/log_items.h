// An order log that a test makes up: what every rank does in it, and what it must hold afterwards.
#pragma once

#include <random>
#include <vector>

#include "collective/shm/collectives.h"
#include "native/collective/channels/world.h"

namespace hvd::test {

// One batch of the log, from which every rank derives its own part and everybody's expected result.
struct Item {
  uint64_t seq;
  std::vector<int> ranks;
  OpType type;
  size_t elems;
  int root = 0;
  bool exact = false;      // small numbers, whose sums are the same in any order
  bool on_device = false;  // for executors that have a backend for that
};

inline Bytes InputOf(const Item& item, int member) {
  const uint64_t seed = item.seq * 100 + item.ranks[member];
  return item.exact ? ExactElements(DType::kFloat32, item.elems, seed)
                    : RandomElements(DType::kFloat32, item.elems, seed);
}

// What `member` holds afterwards.
inline Bytes Expected(const Item& item, int member) {
  std::vector<Bytes> inputs;
  Bytes all;
  const int n = static_cast<int>(item.ranks.size());
  for (int m = 0; m < n; ++m) {
    inputs.push_back(InputOf(item, m));
    all.insert(all.end(), inputs[m].begin(), inputs[m].end());
  }
  if (item.type == OpType::kBroadcast) return inputs[item.root];
  if (item.type == OpType::kAllgather) return all;
  if (item.type == OpType::kBarrier) return Bytes();
  Bytes sum = Combine(DType::kFloat32, ReduceOp::kSum, {}, inputs);
  if (item.type == OpType::kAllreduce) return sum;
  if (item.type == OpType::kReducescatter) {
    const collective::shm::RowBlock block = collective::shm::BlockOfMember(item.elems, n, member);
    return Bytes(sum.begin() + 4 * block.first, sum.begin() + 4 * (block.first + block.count));
  }
  Bytes received;  // alltoall by the same rule of blocks
  for (int m = 0; m < n; ++m) {
    const collective::shm::RowBlock block = collective::shm::BlockOfMember(item.elems, n, member);
    received.insert(received.end(), inputs[m].begin() + 4 * block.first,
                    inputs[m].begin() + 4 * (block.first + block.count));
  }
  return received;
}

inline int MemberOf(const Item& item, int rank) {
  for (size_t m = 0; m < item.ranks.size(); ++m) {
    if (item.ranks[m] == rank) return static_cast<int>(m);
  }
  return -1;
}

inline constexpr OpType kTypes[] = {OpType::kAllreduce, OpType::kAllgather,     OpType::kBroadcast,
                                    OpType::kAlltoall,  OpType::kReducescatter, OpType::kBarrier};

inline std::vector<Item> RandomLog(int n, size_t length, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<int>> sets;
  for (int s = 0; s < 6; ++s) {
    std::vector<int> ranks;
    for (int r = 0; r < n; ++r) {
      if (s == 0 || random() % 2) ranks.push_back(r);
    }
    if (ranks.size() > 1) sets.push_back(ranks);
  }
  std::vector<Item> log;
  uint64_t seq = 0;
  for (size_t i = 0; i < length; ++i) {
    Item item;
    item.seq = seq += 1 + random() % 3;
    item.ranks = sets[random() % sets.size()];
    item.type = kTypes[random() % 6];
    item.root = static_cast<int>(random() % item.ranks.size());
    const size_t most[] = {10, 900, 6000, 20000, 150000};
    item.elems = random() % most[random() % (i % 16 == 0 ? 5 : 4)];
    log.push_back(item);
  }
  return log;
}

}  // namespace hvd::test
