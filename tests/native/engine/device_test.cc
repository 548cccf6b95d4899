// Tensors on devices through the whole engine, ranks as threads, over fake devices: what is refused and how that is
// told, when an operation is done, what its owner then gets, and how it ends when it does not end well.
#include <algorithm>

#include "engine/entry/outcomes.h"
#include "native/engine/fake_device.h"
#include "native/engine/world.h"

namespace hvd::test::engine_device {
namespace {

using engine::Completion;

class DeviceEngines {
 public:
  explicit DeviceEngines(int n) : DeviceEngines(n, EngineWorld::Options()) {}
  DeviceEngines(int n, EngineWorld::Options options) : ranks(n), world(n, std::move(options)) {
    for (int r = 0; r < n; ++r) ranks[r] = std::make_unique<FakeRank>(r, &fabric, &world[r].backends());
    fabric.at_once = true;
  }

  FakeFabric fabric;
  std::vector<std::unique_ptr<FakeRank>> ranks;
  EngineWorld world;
};

Op OnDevice(hvd_op_type type, const std::string& name, const std::vector<float>& in, std::vector<float>* out,
            void* stream = nullptr) {
  Op op(type, HVD_FLOAT32, name, {static_cast<int64_t>(in.size())}, in.data(), out != nullptr ? out->data() : nullptr);
  op.op.place = 1;
  op.op.stream = stream;
  return op;
}
Op OnHost(const std::string& name, std::vector<float>* data) {
  return Op(HVD_ALLREDUCE, HVD_FLOAT32, name, {static_cast<int64_t>(data->size())}, data->data(), data->data());
}

int TheStream = 0;

// Until the devices are through with a done operation.
void Await(const Completion& done) {
  for (const engine::Outcome& outcome : done.results) {
    if (outcome.tensor.device == nullptr || outcome.tensor.device->ready == nullptr) continue;
    while (!outcome.tensor.device->ready->Reached()) sched_yield();
  }
}

TEST(device_is_done_when_it_is_on_its_way) {
  DeviceEngines job(2);
  job.fabric.at_once = false;
  std::vector<std::vector<float>> data(2, std::vector<float>(1000));
  std::vector<std::shared_ptr<Completion>> done(2);
  RanksAsThreads(2, [&](int r) {
    data[r].assign(1000, static_cast<float>(r + 1));
    EXPECT_OK(RunOp(job.world[r], OnDevice(HVD_ALLREDUCE, "w", data[r], &data[r]).op, &done[r]));
    EXPECT_EQ(data[r][999], static_cast<float>(r + 1));
    std::vector<float> host(8, 1.0f);
    EXPECT_OK(RunOp(job.world[r], OnHost("h", &host).op));  // meanwhile
    EXPECT_EQ(host[7], 2.0f);
  });
  for (int r = 0; r < 2; ++r) {
    EXPECT(engine::MustBeKept(*done[r]));
    EXPECT_OK(engine::Order(*done[r], &TheStream));
    const auto& ready = static_cast<const FakeEvent&>(*done[r]->results[0].tensor.device->ready);
    EXPECT(!ready.Reached() && ready.held_back() == std::vector<void*>({&TheStream}));
    EXPECT_EQ(job.ranks[r]->devices.marks, 1);
  }
  job.fabric.Work();
  EXPECT_EQ(data[0][999], 3.0f);
  EXPECT_EQ(data[1][0], 3.0f);
}

// Each stream of a group is marked once; tensors of one batch have one event, which a stream waits for once.
TEST(device_groups_have_an_event_for_each_stream) {
  DeviceEngines job(2);
  int other = 0;
  RanksAsThreads(2, [&](int r) {
    std::vector<float> a(10, 1.0f), b(20, 2.0f), c(30, 3.0f), d(40, 4.0f);
    const std::vector<Op> group = {OnDevice(HVD_ALLREDUCE, "a", a, &a, &TheStream),
                                   OnDevice(HVD_ALLREDUCE, "b", b, &b, &other),
                                   OnDevice(HVD_ALLREDUCE, "c", c, &c, &TheStream), OnHost("d", &d)};
    std::vector<hvd_op> ops;
    for (const Op& op : group) ops.push_back(op.op);
    std::shared_ptr<Completion> done;
    EXPECT_OK(job.world[r].Submit(ops.data(), 4, HVD_SUBMIT_WILL_WAIT, &done));
    EXPECT(job.world[r].Wait(*done, 30));
    EXPECT_OK(done->status());
    Await(*done);
    EXPECT_EQ(a[9] + b[19] + c[29] + d[39], 20.0f);
    EXPECT_EQ(job.ranks[r]->devices.marks, 2);
    EXPECT_OK(engine::Order(*done, &TheStream));
    EXPECT(done->results[3].tensor.device == nullptr);  // what lies elsewhere is no part of their batch
    const auto& ready = static_cast<const FakeEvent&>(*done->results[1].tensor.device->ready);
    EXPECT_EQ(ready.held_back().size(), 1u);
    // Before they are let go, the streams that they came from.
    EXPECT_OK(engine::LetGo(*done));
    const std::vector<void*> held_back = ready.held_back();
    for (void* const stream : {static_cast<void*>(&TheStream), static_cast<void*>(&other)})
      EXPECT(std::find(held_back.begin() + 1, held_back.end(), stream) != held_back.end());
  });
}

TEST(device_results_are_copied_and_not_taken) {
  DeviceEngines job(2);
  RanksAsThreads(2, [&](int r) {
    FakeDevices& devices = job.ranks[r]->devices;
    const std::vector<float> mine = {static_cast<float>(r), 7.0f};
    std::shared_ptr<Completion> done;
    EXPECT_OK(RunOp(job.world[r], OnDevice(HVD_ALLGATHER, "g", mine, nullptr).op, &done));
    EXPECT(engine::MustBeKept(*done));
    std::vector<float> all(4);
    const auto copy = [&](int index, int64_t bytes) {
      return engine::CopyResult(*done, index, &devices, all.data(), bytes, all.data()).message();
    };
    hvd_result result;
    EXPECT_EQ(engine::TakeResult(*done, 0, &result).message(),
              "this result lies on a GPU, in memory of the core's; copy it to your own with hvd_copy_result.");
    EXPECT_EQ(copy(0, 12), "room for 12 bytes; the result has 16.");
    EXPECT_EQ(copy(1, 16), "result 1 of a submission with 1 tensors.");
    EXPECT_EQ(devices.blocks, 1);
    Await(*done);
    EXPECT_EQ(copy(0, 16), "");
    EXPECT(all == std::vector<float>({0.0f, 7.0f, 1.0f, 7.0f}));
    EXPECT_EQ(devices.blocks, 0);
    EXPECT_EQ(copy(0, 16), "this operation has no result of its own, or it was taken already.");
    EXPECT_EQ(done->results[0].tensor.shape[0], 4);

    Op host(HVD_ALLGATHER, HVD_FLOAT32, "h", {2}, mine.data(), static_cast<float*>(nullptr));
    EXPECT_OK(RunOp(job.world[r], host.op, &done));
    EXPECT_EQ(copy(0, 16), "this result lies in host memory; take it with hvd_take_result.");
    EXPECT_OK(engine::Order(*done, &TheStream));
    EXPECT_OK(engine::TakeResult(*done, 0, &result));
    EXPECT_EQ(result.bytes, 16);
    delete static_cast<collective::Block*>(result.owner);
    EXPECT(!engine::MustBeKept(*done));
    EXPECT_EQ(engine::Order(Completion(1), &TheStream).code() == Code::kInProgress, true);
  });
}

// Also where the name was agreed on before, and where one rank takes the express path.
TEST(device_and_host_do_not_meet) {
  DeviceEngines job(3);
  const std::string who =
      "allreduce 'w': rank 1 sent a tensor on a GPU, ranks 0, 2 sent a tensor in host memory; all "
      "ranks must keep it on the same kind of device.";
  RanksAsThreads(3, [&](int r) {
    for (int step = 0; step < 6; ++step) {
      std::vector<float> data(4, 1.0f);
      Op op = OnHost("w", &data);
      const bool differs = step % 2 == 1;
      op.op.place = r == 1 && differs ? 1 : 0;
      std::shared_ptr<Completion> done;
      const Status run = step < 4 ? RunOp(job.world[r], op.op) : job.world[r].Run(&op.op, 1, 30, &done);
      const Status status = done != nullptr ? done->status() : run;
      EXPECT_EQ(status.message(), differs ? who : "");
      EXPECT_EQ(data[3], differs ? 1.0f : 3.0f);
    }
  });
}

TEST(device_refusals_reach_the_others) {
  DeviceEngines job(2);
  job.world[0].backends().SetDevices(nullptr);
  const std::vector<std::pair<int, std::string>> places = {
      {1, "no GPU is in use on this rank: hvd_use_gpu was not called, or has failed."},
      {3, "its tensor lies on CUDA device 2, but this rank uses CUDA device 0 only. Move the tensor there."},
      {-1, "unknown place -1."},
      {1, "its stream is being captured into a graph; capture what is around it."}};
  for (size_t k = 0; k < places.size(); ++k) {
    const std::string name = "x" + std::to_string(k), what = "allreduce '" + name + "': ";
    RanksAsThreads(2, [&](int r) {
      std::vector<float> data(4, 1.0f);
      Op op = OnDevice(HVD_ALLREDUCE, name, data, &data, k == 3 ? &FakeDevices::capturing : nullptr);
      op.op.place = r == 0 ? places[k].first : 0;
      const Status status = RunOp(job.world[r], op.op);
      EXPECT_EQ(status.message(),
                r == 0 ? what + places[k].second : what + "rank 0 refused it: " + what + places[k].second);
      const Code expected = r == 1 ? Code::kMismatch : k == 3 ? Code::kUnsupported : Code::kInvalidArgument;
      EXPECT(status.code() == expected);
    });
    job.world[0].backends().SetDevices(&job.ranks[0]->devices);
  }
  RanksAsThreads(2, [&](int r) {
    Op barrier(HVD_BARRIER, HVD_FLOAT32, "b", {}, static_cast<float*>(nullptr), static_cast<float*>(nullptr));
    barrier.op.place = 1;
    EXPECT_EQ(RunOp(job.world[r], barrier.op).message(), "barrier 'b': it has no tensor, so place must be 0.");
  });
}

// Memory that stands in for the tensor of a joined rank lives until the devices are through with it.
TEST(device_a_joined_rank_stands_in_on_its_device) {
  DeviceEngines job(2);
  job.fabric.at_once = false;
  std::atomic<bool> worked{false};
  RanksAsThreads(2, [&](int r) {
    FakeDevices& devices = job.ranks[r]->devices;
    std::vector<float> data(100, 6.0f);
    if (r == 0) {
      std::shared_ptr<Completion> done;
      Op op = OnDevice(HVD_ALLREDUCE, "w", data, &data);
      op.op.reduce_op = HVD_AVERAGE;
      EXPECT_OK(RunOp(job.world[0], op.op, &done));
      while (job.fabric.order(1).empty()) sched_yield();
      EXPECT_EQ(job.ranks[1]->devices.blocks, 1);
      std::vector<float> second(10, 1.0f);
      EXPECT_OK(RunOp(job.world[0], OnDevice(HVD_ALLREDUCE, "w2", second, &second).op));
      while (job.fabric.order(1).size() < 2) sched_yield();
      EXPECT_EQ(job.ranks[1]->devices.blocks, 2);
      job.fabric.Work();
      EXPECT_EQ(data[99], 3.0f);
      worked = true;
    }
    hvd_op join = {};
    join.type = HVD_JOIN;
    EXPECT_OK(RunOp(job.world[r], join));
    EXPECT(worked);
    std::vector<float> more(10, 1.0f);
    job.fabric.at_once = true;
    std::shared_ptr<Completion> done;
    EXPECT_OK(RunOp(job.world[r], OnDevice(HVD_ALLREDUCE, "v", more, &more).op, &done));
    Await(*done);
    EXPECT(devices.blocks <= 2 * r);  // given back with the next look, or the next stand-in
  });
  job.world.Leave(1);
  EXPECT_EQ(job.ranks[1]->devices.blocks, 0);
}

// Who owns a tensor may store into it when it is told: until then Abort has come back.
TEST(device_failure_stops_the_devices_before_owners_hear_of_it) {
  DeviceEngines job(2);
  job.fabric.open = false;
  std::vector<float> data(10, 1.0f);
  std::shared_ptr<Completion> under_way;
  std::atomic<int> aborts{0};
  for (auto& rank : job.ranks) {
    rank->backend->on_abort = [&] {
      EXPECT(!under_way->done());
      ++aborts;
    };
  }
  const Op op = OnDevice(HVD_ALLREDUCE, "w", data, &data);
  EXPECT_OK(job.world[0].Submit(&op.op, 1, HVD_SUBMIT_AT_ONCE, &under_way));
  job.ranks[1]->backend->on_abort = nullptr;
  job.world[1].Abort(Status(Code::kInternal, "enough"));
  EXPECT(job.world[0].Wait(*under_way, 30));
  EXPECT_EQ(under_way->status().message(), "enough");
  EXPECT_EQ(aborts, 1);
}

// Nobody is in the engine when it is seen: the background thread of one rank wakes for it, and tells the others.
TEST(device_work_that_stands_still_fails_all_ranks) {
  DeviceEngines job(2);
  job.fabric.at_once = false;
  job.ranks[0]->backend->patience_s = 0.3;
  RanksAsThreads(2, [&](int r) {
    std::vector<float> data(10, 1.0f);
    EXPECT_OK(RunOp(job.world[r], OnDevice(HVD_ALLREDUCE, "w", data, &data).op));
    const double begun = engine::NowS();
    while (job.world[r].DescribeJson().find("\"failed\":true") == std::string::npos && engine::NowS() < begun + 20)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(RunOp(job.world[r], OnHost("h", &data).op).message(), "the device stands still");
  });
}

TEST(device_tasks_that_stand_still_time_out) {
  EngineWorld::Options options;
  options.collective_timeout_s = 0.3;
  DeviceEngines job(2, options);
  job.fabric.open = false;
  RanksAsThreads(2, [&](int r) {
    std::vector<float> data(10, 1.0f);
    const Op op = OnDevice(HVD_ALLREDUCE, "w", data, &data);
    const Status status = RunOp(job.world[r], op.op);
    EXPECT(status.code() == Code::kTimeout);
    EXPECT(status.message().find("allreduce 'w': no progress for 0.3 s on rank ") == 0);
  });
}

TEST(device_shutdown_in_good_order_lets_them_work) {
  DeviceEngines job(2);
  job.fabric.at_once = false;
  for (auto& rank : job.ranks) rank->backend->patience_s = 1e9;
  std::atomic<int> aborts{0};
  std::atomic<bool> idle{false};
  std::vector<std::vector<float>> data(2, std::vector<float>(10, 1.0f));
  RanksAsThreads(2, [&](int r) {
    job.ranks[r]->backend->on_abort = [&] { ++aborts; };
    EXPECT_OK(RunOp(job.world[r], OnDevice(HVD_ALLREDUCE, "w", data[r], &data[r]).op));
  });
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    job.fabric.Work();
    idle = true;
    for (auto& rank : job.ranks) rank->backend->check_at = FakeDeviceBackend::kNever;
  });
  RanksAsThreads(2, [&](int r) {
    job.world[r].Shutdown(30);
    EXPECT(idle);
  });
  later.join();
  EXPECT_EQ(data[0][9], 2.0f);
  EXPECT_EQ(aborts, 0);
}

// Whoever has not waited for an operation lets go of its tensors after the shutdown, and their memory is used again.
TEST(device_shutdown_orders_streams_of_operations_that_nobody_waited_for) {
  DeviceEngines job(2);
  std::vector<std::vector<float>> data(2, std::vector<float>(10, 1.0f));
  RanksAsThreads(2, [&](int r) {
    std::shared_ptr<Completion> done;
    EXPECT_OK(RunOp(job.world[r], OnDevice(HVD_ALLREDUCE, "left", data[r], &data[r], &TheStream).op, &done));
    Await(*done);
    job.world[r].handles().Add(done);
    job.world[r].Shutdown(30);
    const auto& ready = static_cast<const FakeEvent&>(*done->results[0].tensor.device->ready);
    EXPECT(ready.held_back() == std::vector<void*>({&TheStream}));
  });
}

TEST(device_shutdown_ends_work_that_does_not_end) {
  DeviceEngines job(1);
  job.ranks[0]->backend->patience_s = 1e9;
  std::atomic<int> aborts{0};
  job.ranks[0]->backend->on_abort = [&] { ++aborts; };
  std::vector<float> data(10, 1.0f);
  EXPECT_OK(RunOp(job.world[0], OnDevice(HVD_ALLREDUCE, "w", data, &data).op));
  job.world[0].Shutdown(0.2);
  EXPECT_EQ(aborts, 1);
}

}  // namespace
}  // namespace hvd::test::engine_device
