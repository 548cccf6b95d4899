// Collectives over shared memory one after the other, without anything between that would hold the ranks together: what
// one batch leaves in the stages must not be overwritten by the next one, of whatever kind and size, while a slower
// rank still reads it.
#include <unistd.h>

#include <atomic>

#include "collective/shm/collectives.h"
#include "native/collective/shm/world.h"

namespace hvd::test::collective_shm_sequence {
namespace {

using namespace hvd::collective;
using namespace hvd::collective::shm;

constexpr size_t kPiece = transport::LocalView::kStages * transport::LocalView::stage_bytes() / 4;

// One batch of a sequence.
struct Turn {
  OpType type;
  int root;
  std::vector<std::vector<size_t>> parts;  // bytes from each member to each
};

// Every byte tells its batch, its ranks and its place.
Bytes Filled(size_t bytes, uint64_t seq, int from, int to) {
  Bytes filled(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    filled[i] =
        static_cast<std::byte>(seq * 31 + static_cast<uint64_t>(from) * 5 + static_cast<uint64_t>(to) * 3 + i % 251);
  }
  return filled;
}

// What the sum of all ranks' bytes is, modulo 256.
Bytes Summed(size_t bytes, uint64_t seq, int n) {
  Bytes sum(bytes);
  for (int from = 0; from < n; ++from) {
    const Bytes part = Filled(bytes, seq, from, 0);
    for (size_t i = 0; i < bytes; ++i)
      sum[i] = static_cast<std::byte>(static_cast<unsigned>(sum[i]) + static_cast<unsigned>(part[i]));
  }
  return sum;
}

Turn RandomTurn(std::mt19937_64& random, int n) {
  // Broadcasts, after which the root goes on at once, as often as all others together.
  static constexpr OpType kTypes[] = {OpType::kBroadcast, OpType::kBroadcast,    OpType::kBroadcast,
                                      OpType::kBroadcast, OpType::kAllgather,    OpType::kAlltoall,
                                      OpType::kAllreduce, OpType::kReducescatter};
  Turn turn{kTypes[random() % 8], static_cast<int>(random() % n), {}};
  // None, inline, about as much as goes inline, a piece give or take a byte, several pieces.
  const size_t sizes[] = {0, 1, 4097, 65536 - 8, 65537, kPiece - 1, kPiece, kPiece + 1, 3 * kPiece + 5};
  const bool even = random() % 2 == 0;
  const size_t same = sizes[random() % 9];
  for (int from = 0; from < n; ++from) {
    const size_t own = even ? same : sizes[random() % 9];
    const bool equal = turn.type != OpType::kAllgather && turn.type != OpType::kAlltoall;
    turn.parts.emplace_back(n, equal ? same : own);
    if (turn.type == OpType::kAlltoall && !even) {
      for (size_t& bytes : turn.parts.back()) bytes = sizes[random() % 9] / n;
    }
  }
  return turn;
}

// Ranks that are never quite in step.
void Dawdle(std::mt19937_64& random) {
  if (random() % 4 == 0) usleep(static_cast<useconds_t>(random() % 200));
}

Status RunTurn(transport::Neighbours& n, const Group& group, const Turn& turn, uint64_t seq, bool* right) {
  const int me = group.index;
  Batch batch;
  batch.seq = seq;
  batch.type = turn.type;
  batch.root = turn.root;
  batch.dtype = DType::kUint8;
  Bytes input, expected;
  const bool to_each = turn.type == OpType::kAlltoall;
  for (int to = 0; to < (to_each ? group.size() : 1); ++to) {
    const Bytes part = Filled(turn.parts[me][to], seq, me, to);
    input.insert(input.end(), part.begin(), part.end());
  }
  batch.tensors.push_back(MakeTensor(input.data(), nullptr, {static_cast<int64_t>(input.size())}));
  Tensor& tensor = batch.tensors[0];
  if (turn.type == OpType::kBroadcast) {
    tensor.output = input.data();
    HVD_TRY(Drive(n, Broadcast(group, batch)));
    *right = input == Filled(input.size(), seq, turn.root, 0);
    return Status();
  }
  if (turn.type == OpType::kAllreduce || turn.type == OpType::kReducescatter) {
    expected = Summed(input.size(), seq, group.size());
    if (turn.type == OpType::kAllreduce) {
      tensor.output = input.data();
      HVD_TRY(Drive(n, Allreduce(group, batch)));
      *right = input == expected;
      return Status();
    }
    const RowBlock own = BlockOfMember(input.size(), group.size(), me);
    HVD_TRY(Drive(n, Reducescatter(group, batch)));
    *right = ResultIs(tensor, Bytes(expected.begin() + static_cast<ptrdiff_t>(own.first),
                                    expected.begin() + static_cast<ptrdiff_t>(own.first + own.count)));
    return Status();
  }
  for (int from = 0; from < group.size(); ++from) {
    const int to = to_each ? me : 0;
    const Bytes part = Filled(turn.parts[from][to], seq, from, to);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  if (to_each) {
    tensor.splits.assign(turn.parts[me].begin(), turn.parts[me].end());
    HVD_TRY(Drive(n, Alltoall(group, batch)));
  } else {
    HVD_TRY(Drive(n, Allgather(group, batch)));
  }
  *right = ResultIs(tensor, expected);
  return Status();
}

constexpr int kTurns = kThreadSanitizer ? 10 : kSanitizer ? 25 : 60;

void RunSequence(int n, StoreChooser::Setting stores) {
  std::mt19937_64 random(static_cast<uint64_t>(n));
  ShmWorld world(n);
  std::vector<Turn> turns;
  for (int i = 0; i < kTurns; ++i) turns.push_back(RandomTurn(random, n));
  RanksAsThreads(n, [&](int rank) {
    std::mt19937_64 pauses(static_cast<uint64_t>(100 * n + rank));
    const auto side = MakeGroup(world.rank(rank), world.all(), stores);
    for (size_t i = 0; i < turns.size(); ++i) {
      bool right = false;
      Dawdle(pauses);
      EXPECT_OK(RunTurn(world.rank(rank), side->group, turns[i], i + 1, &right));
      EXPECT(right);
    }
  });
}

TEST(shm_one_collective_after_the_other) {
  for (const int n : {2, 3, 8}) RunSequence(n, StoreChooser::Setting::kMeasure);
}

// Where nothing is measured, the root of a broadcast waits for nobody.
TEST(shm_one_collective_after_the_other_unmeasured) {
  for (const int n : {2, 3, 8}) {
    RunSequence(n, StoreChooser::Setting::kOrdinary);
    RunSequence(n, StoreChooser::Setting::kStreaming);
  }
}

// The root of a broadcast that is measured waits for the others; of one that is not, it is done when it has stored
// everything.
TEST(shm_broadcast_root_waits_only_to_measure) {
  constexpr size_t kBytes = 3 * kPiece;
  constexpr uint64_t kMeasured = StoreChooser::kFirstTrials;
  ShmWorld world(2);
  bool left_early = false, left_early_measured = false;  // of rank 1 only
  std::atomic<uint64_t> root_done{0};
  RanksAsThreads(2, [&](int rank) {
    const auto side = MakeGroup(world.rank(rank), world.all());
    for (uint64_t seq = 1; seq <= kMeasured + 1; ++seq) {
      const Turn turn{OpType::kBroadcast, 0, {{kBytes, kBytes}, {kBytes, kBytes}}};
      if (rank == 1) {
        for (int i = 0; seq > kMeasured && i < 10000 && root_done.load() < seq; ++i) usleep(1000);
        usleep(2000);  // long enough for a root that does not wait
        (seq > kMeasured ? left_early : left_early_measured) |= root_done.load() >= seq;
      }
      bool right = false;
      EXPECT_OK(RunTurn(world.rank(rank), side->group, turn, seq, &right));
      EXPECT(right);
      if (rank == 0) root_done = seq;
    }
  });
  EXPECT(left_early);
  EXPECT(!left_early_measured);
}

// Who gives up after it has announced a part, or before, leaves the others with an error.
TEST(shm_gather_with_a_member_that_gives_up) {
  for (const bool announced : {false, true}) {
    ShmWorld world(3);
    RanksAsThreads(3, [&](int rank) {
      const auto side = MakeGroup(world.rank(rank), world.all());
      const Turn turn{OpType::kAllgather, 0, std::vector<std::vector<size_t>>(3, std::vector<size_t>(3, 3 * kPiece))};
      if (rank == 1) {
        side->view->Begin(1);
        if (announced) side->view->Publish(1);
        world.rank(rank).Abandon(1);
        return;
      }
      bool right = false;
      EXPECT(!RunTurn(world.rank(rank), side->group, turn, 1, &right).ok());
    });
  }
}

}  // namespace
}  // namespace hvd::test::collective_shm_sequence
