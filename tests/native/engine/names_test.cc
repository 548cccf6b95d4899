// Names through the whole engine: counters of unnamed operations, and names that are long or many.
#include "native/engine/world.h"

namespace hvd::test::engine_names {

using namespace hvd::engine;

namespace {

constexpr double kSoon = 5;  // of an operation that must not hang

Op Unnamed(hvd_op_type type, std::vector<float>* data) {
  return Op(type, HVD_FLOAT32, "", {static_cast<int64_t>(data->size())}, data->data(), data->data());
}

void RunSoon(Engine& engine, const hvd_op& op) {
  std::shared_ptr<Completion> c;
  EXPECT_OK(engine.Submit(&op, 1, HVD_SUBMIT_WILL_WAIT, &c));
  EXPECT(engine.Wait(*c, kSoon));
  if (c->done()) EXPECT_OK(c->status());
}

void Join(Engine& engine) {
  hvd_op op = {};
  op.type = HVD_JOIN;
  std::shared_ptr<Completion> c;
  EXPECT_OK(engine.Submit(&op, 1, HVD_SUBMIT_WILL_WAIT, &c));
  EXPECT(engine.Wait(*c, kSoon));
}

}  // namespace

// A set that was counted in is removed; one with other members comes after it.
TEST(engine_names_unnamed_operations_of_sets_one_after_another) {
  const int n = 3;
  EngineWorld world(n);
  RanksAsThreads(n, [&](int r) {
    std::vector<float> data(4, 1.0f);
    int last = 0;
    for (const std::vector<int>& ranks : {std::vector<int>{0, 1}, {0, 2}, {0, 1}}) {
      std::shared_ptr<Completion> c;
      EXPECT_OK(world[r].AddSet(ranks, &c));
      EXPECT(world[r].Wait(*c, kSoon));
      Op op = Unnamed(HVD_ALLREDUCE, &data);
      op.op.process_set = static_cast<int>(c->value);
      EXPECT(op.op.process_set > last);  // an id is never given twice
      last = op.op.process_set;
      if (r == ranks[0] || r == ranks[1]) RunSoon(world[r], op.op);
      EXPECT_OK(world[r].RemoveSet(last, &c));
      EXPECT(world[r].Wait(*c, kSoon));
    }
  });
}

// An uneven epoch: the ranks have counted different numbers of unnamed operations when it ends.
TEST(engine_names_unnamed_operations_after_an_uneven_join) {
  const int n = 2;
  EngineWorld world(n);
  RanksAsThreads(n, [&](int r) {
    std::vector<float> data(4, 1.0f);
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int step = 0; step < 2 + 3 * r; ++step) RunSoon(world[r], Unnamed(HVD_ALLREDUCE, &data).op);
      Join(world[r]);
      RunSoon(world[r], Unnamed(HVD_ALLREDUCE, &data).op);
      Op gather = Unnamed(HVD_ALLGATHER, &data);
      gather.op.output = nullptr;
      RunSoon(world[r], gather.op);
    }
  });
}

// What is refused because a rank has joined was counted on the others only.
TEST(engine_names_unnamed_operations_after_one_was_refused_in_a_join) {
  const int n = 2;
  EngineWorld world(n);
  RanksAsThreads(n, [&](int r) {
    std::vector<float> data(4, 1.0f);
    Op gather = Unnamed(HVD_ALLGATHER, &data);
    gather.op.output = nullptr;
    if (r == 1) {
      std::shared_ptr<Completion> c;
      EXPECT_OK(world[r].Submit(&gather.op, 1, HVD_SUBMIT_WILL_WAIT, &c));
      EXPECT(world[r].Wait(*c, kSoon));
      EXPECT(c->status().code() == Code::kMismatch);
    }
    Join(world[r]);
    RunSoon(world[r], gather.op);
  });
}

TEST(engine_names_too_long_is_an_error_at_once) {
  const int n = 2;
  EngineWorld world(n);
  const std::string name(20 << 20, 'n');
  RanksAsThreads(n, [&](int r) {
    std::vector<float> data(4, 1.0f);
    Op op(HVD_ALLREDUCE, HVD_FLOAT32, name, {4}, data.data(), data.data());
    std::shared_ptr<Completion> c;
    const Status refused = world[r].Run(&op.op, 1, kSoon, &c);
    EXPECT(refused.code() == Code::kInvalidArgument);
    EXPECT(refused.message().size() < 400);
    EXPECT(refused.message().find("the name is longer than 65536 bytes") != std::string::npos);
    const Status not_told = world[r].Refuse(OpType::kAllreduce, 0, name, "because");
    EXPECT(not_told.code() == Code::kInvalidArgument);
    RunSoon(world[r], Unnamed(HVD_ALLREDUCE, &data).op);  // the engine is as before
  });
}

// 100,000 tensors, 35 MB of names: more than a ring or a frame's piece holds, up, down and through an inner rank.
TEST(engine_names_a_group_of_many_long_names) {
  const int n = 2, tensors = kSanitizer ? 20000 : 100000;
  EngineWorld world(n);
  std::vector<std::string> names;
  for (int i = 0; i < tensors; ++i) names.push_back(std::string(340, 'g') + std::to_string(i));
  RanksAsThreads(n, [&](int r) {
    std::vector<float> data(tensors, 1.0f);
    const int64_t shape[] = {1};
    std::vector<hvd_op> ops;
    for (int i = 0; i < tensors; ++i) {
      Op op(HVD_ALLREDUCE, HVD_FLOAT32, names[i], {1}, &data[i], &data[i]);
      op.op.name = names[i].c_str();
      op.op.shape = shape;
      ops.push_back(op.op);
    }
    std::shared_ptr<Completion> c;
    EXPECT_OK(world[r].Submit(ops.data(), tensors, HVD_SUBMIT_WILL_WAIT, &c));
    EXPECT(world[r].Wait(*c, 60));
    EXPECT(c->done() && c->status().ok());
    EXPECT_EQ(data.front(), 2.0f);
    EXPECT_EQ(data.back(), 2.0f);
  });
}

}  // namespace hvd::test::engine_names
