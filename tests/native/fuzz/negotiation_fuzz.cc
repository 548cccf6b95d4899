// Fuzz target: frames from hostile or broken neighbours into a negotiation node. The input is a script: each step picks
// who sends (parent, a child, a stranger) or what the own rank does, and the bytes of the frame. Nothing may crash,
// hang or grow without bound; a refused frame ends the life of the node, as it does in the engine. Build with
// -fsanitize=fuzzer,address or link with driver.cc.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "negotiation/frames/wire.h"
#include "negotiation/node.h"

namespace hvd::negotiation {
namespace {

constexpr uint64_t kEpoch = 3;
constexpr uint8_t kBesideStep = 14;  // of 16: a frame that does not come along the tree

struct Script {
  const uint8_t* at;
  const uint8_t* end;
  uint8_t Next() { return at == end ? 0 : *at++; }
  std::vector<std::byte> Take(size_t n) {
    n = std::min(n, static_cast<size_t>(end - at));
    std::vector<std::byte> out(n);
    if (n > 0) std::memcpy(out.data(), at, n);
    at += n;
    return out;
  }
};

NodeConfig Config(int rank) {
  NodeConfig c;
  c.rank = rank;
  c.size = 6;
  c.epoch = kEpoch;
  c.parent = {-1, 0, 0, 1, 1, 3};
  c.leaders = {0, 1};
  c.cache_capacity = 3;
  c.fusion_threshold_bytes = 128 << 20;
  c.stall_warning_s = 2;
  c.stall_shutdown_s = 50;
  return c;
}

Request Named(uint8_t which) {
  Request q;
  q.name = std::string(1, static_cast<char>('a' + which % 5));
  q.shape = {which % 3, 2};
  q.ticket = 1 + which;
  q.process_set = which % 7 == 6 ? 1 : 0;
  if (which & 0x40) q.type = OpType::kAllgather;
  if ((which & 0x80) == 0) q.payload = std::make_shared<std::vector<std::byte>>(which % 4);
  return q;
}

void OwnStep(Node* node, uint8_t what, uint8_t which, double now) {
  const Request q = Named(which);
  switch (what % 10) {
    case 0:
    case 1:
    case 2:
      node->Submit(std::span(&q, 1), now);
      break;
    case 3:
      node->Refuse(q.type, q.process_set, q.name, "no", now);
      break;
    case 4:
      node->Join(9, now);
      break;
    case 5:
      if (which % 3 == 0) {
        node->AddSet({0, 1, 2 + which % 6}, 9, now, true);  // the own rank is 0 or 1
      } else {
        node->AddSet({0, 1, which % 8}, 9, now);
      }
      break;
    case 6:
      node->RemoveSet(which % 3, 9, now);
      break;
    case 7: {
      Parameters parameters;
      parameters.fusion_threshold_bytes = which;
      parameters.hierarchical_allreduce = which % 3 - 1;
      node->ChangeParameters(parameters, now);
      break;
    }
    case 9:
      node->OrderTrace({.number = which, .on = which % 2 == 0, .base_us = which}, now);
      node->AskClocks({1.0 * which, {{which % 6, 0.5, 0.25}}}, now);
      node->SendUp(TracePiece{which % 6, which, static_cast<TracePiece::Kind>(which % 3), 1, "{}"});
      node->SendUp(ClockAnswer{which % 6, 1, 2});
      break;
    default:
      node->Goodbye(now);
  }
}

// Takes everything out, as the engine would.
void Drain(Node* node, double now) {
  node->Flush(now, 0);
  size_t bytes = 0;
  node->TakeOutgoing([&](int, std::span<const std::byte> frame) { bytes += frame.size(); });
  node->actions().clear();
}

}  // namespace
}  // namespace hvd::negotiation

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd::negotiation;
  Script script{data, data + size};
  const int rank = script.Next() % 2;  // the root, or an inner node
  const std::vector<int> neighbours = rank == 0 ? std::vector<int>{1, 2} : std::vector<int>{0, 3, 4};
  Node node(Config(rank));
  std::vector<uint32_t> numbers(6, 0), numbers_beside(6, 0);
  double now = 0;
  while (script.at != script.end) {
    const uint8_t step = script.Next();
    if (step >= 0xf0) {
      now += step & 0x0f;
      node.Tick(now);
    } else if (step >= 0xa0) {
      OwnStep(&node, static_cast<uint8_t>(step - 0xa0), script.Next(), now);
    } else {
      const int from = neighbours[step % neighbours.size()];
      std::vector<std::byte> frame(kFrameHeaderBytes);
      const std::vector<std::byte> body = script.Take(static_cast<size_t>(script.Next()) + 256 * (step / 0x50));
      if (step % 16 == 15) {
        frame = body;  // not even a header
      } else {
        const bool beside = step % 16 == kBesideStep;
        const Direction way = beside ? Direction::kBeside : from < rank ? Direction::kDown : Direction::kUp;
        uint32_t& number = (beside ? numbers_beside : numbers)[from];
        WriteHeader({way, static_cast<uint32_t>(from), kEpoch, number++}, frame.data());
        frame.insert(frame.end(), body.begin(), body.end());
      }
      if (!node.Receive(from, frame, now).ok()) return 0;
    }
    Drain(&node, now);
  }
  return 0;
}

// Seeds: what a real child and a real parent send, one frame a step. Used by driver.cc.
std::vector<std::vector<uint8_t>> FuzzSeeds() {
  using namespace hvd::negotiation;
  std::vector<std::vector<uint8_t>> seeds;
  for (const int rank : {0, 1}) {
    std::vector<Node> nodes;
    for (int r = 0; r < 6; ++r) nodes.emplace_back(Config(r));
    std::vector<uint8_t> seed = {static_cast<uint8_t>(rank)};
    std::vector<std::vector<std::pair<int, std::vector<std::byte>>>> inbox(6);
    auto settle = [&] {
      for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < 6; ++r) {
          nodes[r].Flush(0, 0);
          nodes[r].TakeOutgoing(
              [&](int to, std::span<const std::byte> f) { inbox[to].push_back({r, {f.begin(), f.end()}}); });
          nodes[r].actions().clear();
        }
        for (int r = 0; r < 6; ++r) {
          for (auto& [from, frame] : std::exchange(inbox[r], {})) {
            moved = true;
            (void)nodes[r].Receive(from, frame, 0).ok();
            const size_t body = frame.size() - kFrameHeaderBytes;
            if (r != rank || body > 255) continue;
            const int index = rank == 0 ? from - 1 : (from == 0 ? 0 : from - 2);
            // The other leader is neighbour 0 in both cases.
            const uint8_t beside = rank == 0 ? kBesideStep : kBesideStep + 16;
            const bool in_tree = frame[1] != static_cast<std::byte>(Direction::kBeside);
            seed.push_back(in_tree ? static_cast<uint8_t>(index + 0x30) : beside);
            seed.push_back(static_cast<uint8_t>(body));
            for (size_t i = kFrameHeaderBytes; i < frame.size(); ++i) seed.push_back(static_cast<uint8_t>(frame[i]));
          }
        }
      }
    };
    auto all = [&](uint8_t what, uint8_t which) {
      for (int r = 0; r < 6; ++r) OwnStep(&nodes[r], what, static_cast<uint8_t>(which + (what == 3 ? r : 0)), 0);
      seed.push_back(static_cast<uint8_t>(0xa0 + what));
      seed.push_back(which);
      settle();
      seeds.push_back(seed);
    };
    for (uint8_t which : {0, 1, 2, 3, 0, 4, 0x42}) all(0, which);
    all(5, 2);
    all(0, 6);
    all(6, 1);
    all(3, 1);
    all(4, 0);
    all(7, 5);
    for (int r = 1; r < 6; ++r) OwnStep(&nodes[r], 9, static_cast<uint8_t>(r), 0);  // each of itself
    all(9, 0);
    all(0, 0);
    all(8, 0);
  }
  return seeds;
}
