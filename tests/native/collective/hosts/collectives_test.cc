// Two-level reducescatter, allgather, broadcast and alltoall against a plain reference: random batches one after the
// other, over all ranks and over sets that span the hosts in part; what leaves a host, and for whom; faults.
#include "collective/hosts/collectives.h"

#include <atomic>
#include <numeric>
#include <optional>

#include "collective/channels/schedule.h"
#include "native/collective/channels/world.h"
#include "native/collective/hosts/counting.h"

namespace hvd::test::collective_hosts_collectives {
namespace {

using namespace hvd::collective;

using Collective = Task (*)(const Group&, Batch&);
Collective CollectiveOf(OpType type) {
  switch (type) {
    case OpType::kAllgather:
      return &hosts::Allgather;
    case OpType::kBroadcast:
      return &hosts::Broadcast;
    case OpType::kAlltoall:
      return &hosts::Alltoall;
    case OpType::kReducescatter:
      return &hosts::Reducescatter;
    default:
      return &hosts::Allreduce;
  }
}
constexpr OpType kMoving[] = {OpType::kReducescatter, OpType::kAllgather, OpType::kBroadcast, OpType::kAlltoall};

// A batch of a sequence, the same on all ranks.
struct Turn {
  uint64_t seq;
  OpType type;
  DType dtype;
  ReduceOp op;
  kernels::Factors factors;
  std::vector<int> ranks;
  int root;
  std::vector<int64_t> row_elems;                       // by tensor
  std::vector<std::vector<std::vector<int64_t>>> rows;  // [tensor][from][to]; not alltoall: of `from` in [0]
  size_t unit() const { return SizeOf(dtype); }
};

Turn RandomTurn(std::mt19937_64& random, int n, uint64_t seq) {
  const std::vector<ReduceOp>& ops = ElementwiseOps();
  Turn turn{
      seq, kMoving[random() % 4], AllDTypes()[random() % AllDTypes().size()], ops[random() % ops.size()], {}, {}, 0, {},
      {}};
  for (int r = 0; r < n; ++r) {
    if (random() % 4 != 0) turn.ranks.push_back(r);
  }
  if (turn.ranks.size() < 2 || random() % 2 == 0) {
    turn.ranks.resize(n);
    std::iota(turn.ranks.begin(), turn.ranks.end(), 0);
  }
  if (IsFloat(turn.dtype)) turn.factors = {random() % 2 ? 1.0 : 0.5, random() % 2 ? 1.0 : 2.0};
  const int members = static_cast<int>(turn.ranks.size());
  turn.root = static_cast<int>(random() % members);
  const int tensors = 1 + static_cast<int>(random() % 3);
  const int64_t most[] = {0, 3, 40, 700, 20000, 120000};
  const int64_t limit = most[random() % (seq % 8 == 0 ? 6 : 5)] / tensors;
  for (int i = 0; i < tensors; ++i) {
    turn.row_elems.push_back(1 + static_cast<int64_t>(random() % 3));
    const bool equal = turn.type == OpType::kReducescatter || turn.type == OpType::kBroadcast || random() % 3 == 0;
    const bool to_each = turn.type == OpType::kAlltoall;
    const int64_t same = static_cast<int64_t>(random() % (limit + 1));
    turn.rows.emplace_back(members, std::vector<int64_t>(to_each ? members : 1, to_each ? same / members : same));
    for (auto& from : turn.rows.back()) {
      for (int64_t& rows : from) {
        if (!equal) rows = random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % (limit / from.size() + 1));
      }
    }
  }
  return turn;
}

Bytes Part(const Turn& turn, int tensor, int from, int to) {
  const auto elems = static_cast<size_t>(turn.rows[tensor][from][to] * turn.row_elems[tensor]);
  return ExactElements(turn.dtype, elems, turn.seq * 10007 + static_cast<uint64_t>(tensor * 499 + from * 31 + to));
}

void Append(Bytes* to, const Bytes& more) { to->insert(to->end(), more.begin(), more.end()); }

Bytes InputOf(const Turn& turn, int tensor, int member) {
  Bytes input;
  for (size_t to = 0; to < turn.rows[tensor][member].size(); ++to)
    Append(&input, Part(turn, tensor, member, static_cast<int>(to)));
  return input;
}

Bytes ExpectedOf(const Turn& turn, int tensor, int member) {
  const int n = static_cast<int>(turn.ranks.size());
  if (turn.type == OpType::kBroadcast) return InputOf(turn, tensor, turn.root);
  Bytes expected;
  if (turn.type == OpType::kReducescatter) {
    std::vector<Bytes> inputs;
    for (int m = 0; m < n; ++m) inputs.push_back(InputOf(turn, tensor, m));
    const Bytes whole = Combine(turn.dtype, turn.op, turn.factors, inputs);
    const channels::Range rows = channels::PartOf(static_cast<size_t>(turn.rows[tensor][0][0]), n, member);
    const size_t row = static_cast<size_t>(turn.row_elems[tensor]) * turn.unit();
    return Bytes(whole.data() + rows.begin * row, whole.data() + rows.end * row);
  }
  for (int m = 0; m < n; ++m) Append(&expected, Part(turn, tensor, m, turn.type == OpType::kAlltoall ? member : 0));
  return expected;
}

// Who dies_after so many steps fails, and is gone for the others. Who succeeds has the right values.
Status RunTurn(ChannelWorld& world, int rank, const Turn& turn, std::optional<int> dies_after = {}) {
  const auto side = world.MakeGroup(rank, turn.ranks);
  const Group& group = side->group;
  const int me = group.index, tensors = static_cast<int>(turn.rows.size());
  Batch batch;
  batch.seq = turn.seq;
  batch.type = turn.type;
  batch.dtype = turn.dtype;
  batch.op = turn.op;
  batch.prescale = turn.factors.pre;
  batch.postscale = turn.factors.post;
  batch.root = turn.root;
  const bool broadcast = turn.type == OpType::kBroadcast, in_place = turn.seq % 2 == 0;
  std::vector<Bytes> inputs, outputs, before;
  for (int i = 0; i < tensors; ++i) {
    inputs.push_back(InputOf(turn, i, me));
    outputs.push_back(Bytes(broadcast ? inputs[i].size() : 0));
  }
  before = inputs;
  for (int i = 0; i < tensors; ++i) {
    const auto& splits = turn.rows[i][me];
    const int64_t rows = std::accumulate(splits.begin(), splits.end(), int64_t{0});
    std::byte* output = broadcast ? (in_place ? inputs[i] : outputs[i]).data() : nullptr;
    batch.tensors.push_back(MakeTensor(inputs[i].data(), output, {rows, turn.row_elems[i]}));
    if (turn.type == OpType::kAlltoall) batch.tensors.back().splits = splits;
  }
  if (dies_after.has_value()) {
    Runner runner(CollectiveOf(turn.type)(group, batch));
    for (int i = 0; i < *dies_after; ++i) runner.Advance();
    world.Kill(rank, turn.seq);
    return Status(Code::kInternal, "died");
  }
  HVD_TRY(world.Drive(rank, turn.seq, CollectiveOf(turn.type)(group, batch)));
  for (int i = 0; i < tensors; ++i) {
    const Bytes expected = ExpectedOf(turn, i, me);
    if (broadcast) {
      EXPECT((in_place ? inputs[i] : outputs[i]) == expected);
    } else {
      EXPECT(ResultIs(batch.tensors[i], expected));
    }
    if (!broadcast || !in_place) EXPECT(inputs[i] == before[i]);
    for (int m = 0; m < group.size() && (turn.type == OpType::kAllgather || turn.type == OpType::kAlltoall); ++m)
      EXPECT_EQ(batch.tensors[i].received_rows[m], turn.rows[i][m][turn.type == OpType::kAlltoall ? me : 0]);
  }
  return Status();
}

constexpr int kTurns = kSanitizer ? 20 : 80;

TEST(two_level_one_collective_after_the_other) {
  const std::vector<std::vector<int>> layouts = {{0, 0, 1, 1},      {0, 1, 0, 1},       {0, 1, 1, 2},
                                                 {0, 0, 0, 1, 1},   {7, 3, 3, 3, 7, 3}, {0, 0, 0, 0, 0, 1, 1},
                                                 {0, 1, 2, 2, 1, 0}};
  int seed = 0;
  for (const std::vector<int>& layout : layouts) {
    std::mt19937_64 random(static_cast<uint64_t>(++seed));
    ChannelWorld world(layout, seed % 3 == 0 ? Link::kShort : seed % 3 == 1 ? Link::kTcp : Link::kMemory, true);
    std::vector<Turn> turns;
    for (int i = 1; i <= kTurns; ++i) turns.push_back(RandomTurn(random, world.size(), static_cast<uint64_t>(i)));
    RanksAsThreads(world.size(), [&](int rank) {
      for (const Turn& turn : turns) {
        if (std::find(turn.ranks.begin(), turn.ranks.end(), rank) != turn.ranks.end())
          EXPECT_OK(RunTurn(world, rank, turn));
      }
    });
  }
}

// Of four ranks, with `rows` of uint8 on each of them.
Turn EqualTurn(OpType type, int64_t rows) {
  Turn turn{1, type, DType::kUint8, ReduceOp::kSum, {}, {0, 1, 2, 3}, 0, {1}, {}};
  const bool to_each = type == OpType::kAlltoall;
  turn.rows.assign(1, {4, std::vector<int64_t>(to_each ? 4 : 1, to_each ? rows / 4 : rows)});
  return turn;
}

// What rank r of four on two hosts sends to each member.
std::vector<std::vector<size_t>> SentBy(OpType type, int64_t rows) {
  const Turn turn = EqualTurn(type, rows);
  ChannelWorld world({0, 0, 1, 1}, Link::kMemory, true);
  std::vector<std::vector<size_t>> sent(4);
  RanksAsThreads(4, [&](int rank) {
    const auto side = world.MakeGroup(rank);
    const auto counting = Count(&side->group, &sent[rank]);
    Bytes input = InputOf(turn, 0, rank);
    Batch batch;
    batch.seq = 1;
    batch.type = type;
    batch.dtype = DType::kUint8;
    batch.tensors.push_back(MakeTensor(input.data(), input.data(), {rows}));
    if (type == OpType::kAlltoall) batch.tensors[0].splits = turn.rows[0][rank];
    if (type != OpType::kBroadcast) batch.tensors[0].output = nullptr;
    EXPECT_OK(world.Drive(rank, 1, CollectiveOf(type)(side->group, batch)));
  });
  return sent;
}

// As many bytes, but for headers, cross from a host to the other as must; and only between counterparts.
TEST(two_level_sends_what_must_cross_to_the_counterpart) {
  constexpr size_t kRows = 1 << 20, kHeaders = 4096;
  const auto about = [](size_t sent, size_t expected) { return sent >= expected && sent <= expected + kHeaders; };
  const auto scattered = SentBy(OpType::kReducescatter, kRows), gathered = SentBy(OpType::kAllgather, kRows),
             broadcast = SentBy(OpType::kBroadcast, kRows), exchanged = SentBy(OpType::kAlltoall, 4096);
  for (int r = 0; r < 4; ++r) {
    const int counterpart = (r + 2) % 4;
    EXPECT(about(scattered[r][counterpart], kRows / 4));
    EXPECT(about(gathered[r][counterpart], kRows));
    EXPECT(about(broadcast[r][counterpart], r < 2 ? kRows / 2 : 0));
    EXPECT(about(exchanged[r][counterpart], 2048));
    for (const auto* sent : {&scattered, &gathered, &broadcast, &exchanged}) {
      for (int m = 0; m < 4; ++m) EXPECT(m == counterpart || (*sent)[r][m] == 0);
    }
  }
}

// Equal on all members; few members of a host and few bytes go by a tree.
TEST(two_level_broadcast_of_little_does_not_pay) {
  const auto pays = [](std::vector<int> host_of, size_t bytes) {
    ChannelWorld world(std::move(host_of), Link::kMemory, true);
    Bytes data(bytes);
    Batch batch;
    batch.dtype = DType::kUint8;
    batch.tensors.push_back(MakeTensor(data.data(), data.data(), {static_cast<int64_t>(bytes)}));
    int yes = 0;
    for (int r = 0; r < world.size(); ++r) yes += hosts::BroadcastPays(world.MakeGroup(r)->group, batch) ? 1 : 0;
    return yes;
  };
  EXPECT_EQ(pays({0, 0, 1, 1}, 64 << 10), 0);
  EXPECT_EQ(pays({0, 0, 1, 1}, (64 << 10) + 1), 4);
  EXPECT_EQ(pays({0, 1, 1, 1, 1, 1}, 1), 6);
}

// How many of four ranks on two hosts fail, the one that dies among them.
int FailedWhere(int dead, int steps, OpType type) {
  const Turn turn = EqualTurn(type, 3 << 20);
  ChannelWorld world({0, 0, 1, 1}, Link::kTcp, true);
  std::atomic<int> failed{0};
  RanksAsThreads(4, [&](int rank) {
    const Status status = RunTurn(world, rank, turn, rank == dead ? std::optional<int>(steps) : std::nullopt);
    EXPECT(status.code() != Code::kTimeout);
    failed += status.ok() ? 0 : 1;
  });
  return failed;
}

TEST(two_level_collectives_fail_where_a_rank_dies_before_it_begins) {
  for (const OpType type : kMoving) {
    EXPECT_EQ(FailedWhere(/*dead=*/0, /*steps=*/0, type), 4);
    // Who only sends in a broadcast may not notice.
    EXPECT(FailedWhere(/*dead=*/3, /*steps=*/0, type) >= (type == OpType::kBroadcast ? 2 : 4));
  }
}

// The sockets may have taken all of its part, or that of some: they end, and whoever does so well has what it should.
TEST(two_level_collectives_end_when_a_rank_dies) {
  for (const OpType type : kMoving) {
    for (const int dead : {0, 3}) {
      for (const int steps : {1, 3}) EXPECT(FailedWhere(dead, steps, type) >= 1);
    }
  }
}

}  // namespace
}  // namespace hvd::test::collective_hosts_collectives
