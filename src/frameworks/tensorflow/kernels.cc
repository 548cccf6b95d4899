#include "frameworks/tensorflow/kernels.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "frameworks/tensorflow/c_api.h"
#include "frameworks/tensorflow/call.h"
#include "horovod/horovod.h"

namespace hvd::frameworks::tensorflow {
namespace {

// Reads the attributes of a node; remembers the first failure.
class Reader {
 public:
  explicit Reader(TF_OpKernelConstruction* node) : node_(node) {}

  int Int(const char* name) {
    int32_t value = 0;
    if (Ok(status_)) tf.TF_OpKernelConstruction_GetAttrInt32(node_, name, &value, status_.get());
    return value;
  }
  std::string Text(const char* name) {
    int32_t list_size = 0, bytes = 0;
    if (Ok(status_)) tf.TF_OpKernelConstruction_GetAttrSize(node_, name, &list_size, &bytes, status_.get());
    if (!Ok(status_)) return "";
    std::string value(static_cast<size_t>(bytes), '\0');
    tf.TF_OpKernelConstruction_GetAttrString(node_, name, value.data(), value.size(), status_.get());
    return value;
  }
  bool Flag(const char* name) {
    unsigned char value = 0;
    if (Ok(status_)) tf.TF_OpKernelConstruction_GetAttrBool(node_, name, &value, status_.get());
    return value != 0;
  }
  double Number(const char* name) { return std::strtod(Text(name).c_str(), nullptr); }
  std::string NodeName() const {
    const TF_StringView name = tf.TF_OpKernelConstruction_GetName(node_);
    return std::string(name.data, name.len);
  }
  bool ok() const { return Ok(status_); }
  void Report() { tf.TF_OpKernelConstruction_Failure(node_, status_.get()); }

 private:
  TF_OpKernelConstruction* node_;
  StatusPtr status_ = NewStatus();
};

void Destroy(void* attributes) { delete static_cast<Attributes*>(attributes); }

void* Created(Reader* node, Attributes* attributes) {
  if (node->ok()) return attributes;
  node->Report();
  Destroy(attributes);
  return nullptr;
}

const char* OperationName(hvd_op_type type) {
  static constexpr const char* kNames[] = {"allreduce", "allgather", "broadcast", "alltoall", "reducescatter"};
  return kNames[type];
}

template <hvd_op_type kType>
void* Create(TF_OpKernelConstruction* construction) {
  Reader node(construction);
  auto* a = new Attributes;
  a->type = kType;
  const std::string given = node.Text("tensor_name");
  a->name = std::string(OperationName(kType)) + "." + (given.empty() ? node.NodeName() : given);
  a->process_set = node.Int("process_set_id");
  a->blocking = node.Flag("blocking");
  if (kType == HVD_BROADCAST) a->root_rank = node.Int("root_rank");
  if (kType == HVD_ALLREDUCE || kType == HVD_REDUCESCATTER) {
    a->reduce_op = node.Int("reduce_op");
    a->prescale = node.Number("prescale_factor");
    a->postscale = node.Number("postscale_factor");
  }
  return Created(&node, a);
}

void* CreateJoin(TF_OpKernelConstruction* construction) {
  Reader node(construction);
  auto* a = new Attributes;
  a->type = HVD_JOIN;
  a->name = "join";
  a->blocking = node.Flag("blocking");
  return Created(&node, a);
}

void Compute(void* attributes, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  Call::Start(*static_cast<const Attributes*>(attributes), context, done);
}

// ---- operators that answer a number

void* CreatePlain(TF_OpKernelConstruction*) { return new Attributes; }
void* CreateWithSet(TF_OpKernelConstruction* construction) {
  Reader node(construction);
  auto* a = new Attributes;
  a->process_set = node.Int("process_set_id");
  return Created(&node, a);
}

void Answer(TF_OpKernelContext* context, hvd_status code, int32_t value) {
  const StatusPtr status = NewStatus();
  if (code == HVD_OK) {
    const TensorPtr out(tf.TF_AllocateOutput(context, 0, kInt32, nullptr, 0, sizeof value, status.get()));
    if (Ok(status)) std::memcpy(tf.TF_TensorData(out.get()), &value, sizeof value);
  } else {
    tf.TF_SetStatus(status.get(), code == HVD_NOT_INITIALIZED ? kFailedPrecondition : kInvalidArgument,
                    hvd_last_error());
  }
  if (!Ok(status)) tf.TF_OpKernelContext_Failure(context, status.get());
}

template <int32_t hvd_topology::* kField>
void ComputePlace(void*, TF_OpKernelContext* context) {
  hvd_topology place = {};
  const hvd_status code = hvd_get_topology(&place);
  Answer(context, code, place.*kField);
}

hvd_status Members(int process_set, std::vector<int32_t>* ranks) {
  hvd_topology place = {};
  if (const hvd_status code = hvd_get_topology(&place); code != HVD_OK) return code;
  ranks->resize(static_cast<size_t>(place.size));
  auto n = static_cast<int32_t>(ranks->size());
  const hvd_status code = hvd_process_set_ranks(process_set, ranks->data(), &n);
  ranks->resize(code == HVD_OK ? static_cast<size_t>(n) : 0);
  return code;
}

void ComputeSize(void* attributes, TF_OpKernelContext* context) {
  std::vector<int32_t> ranks;
  const hvd_status code = Members(static_cast<const Attributes*>(attributes)->process_set, &ranks);
  Answer(context, code, static_cast<int32_t>(ranks.size()));
}

void ComputeIncluded(void* attributes, TF_OpKernelContext* context) {
  std::vector<int32_t> ranks;
  const hvd_status code = Members(static_cast<const Attributes*>(attributes)->process_set, &ranks);
  hvd_topology place = {};
  (void)hvd_get_topology(&place);
  int32_t included = 0;
  for (const int32_t rank : ranks) included |= rank == place.rank;
  Answer(context, code, included);
}

// ---- registration

using CreateFn = void* (*)(TF_OpKernelConstruction*);

std::string Register(const char* op, const char* device, TF_KernelBuilder* builder,
                     const std::vector<const char*>& arguments) {
  // The CPU's memory is host memory anyhow.
  if (std::strcmp(device, "CPU") != 0) {
    for (const char* argument : arguments) tf.TF_KernelBuilder_HostMemory(builder, argument);
  }
  const StatusPtr status = NewStatus();
  tf.TF_RegisterKernelBuilder(op, builder, status.get());
  return Ok(status) ? "" : std::string(op) + " on " + device + ": " + tf.TF_Message(status.get());
}

struct Collective {
  const char* op;
  CreateFn create;
  std::vector<const char*> arguments;
};

struct Question {
  const char* op;
  CreateFn create;
  void (*compute)(void*, TF_OpKernelContext*);
};

}  // namespace

std::string RegisterKernels() {
  const std::vector<Collective> collectives = {
      {"HorovodAllreduce", Create<HVD_ALLREDUCE>, {"tensors", "outputs"}},
      {"HorovodReducescatter", Create<HVD_REDUCESCATTER>, {"tensors", "outputs"}},
      {"HorovodAllgather", Create<HVD_ALLGATHER>, {"tensors", "outputs"}},
      {"HorovodBroadcast", Create<HVD_BROADCAST>, {"tensors", "outputs"}},
      {"HorovodAlltoall", Create<HVD_ALLTOALL>, {"tensor", "splits", "output", "received_splits"}},
      {"HorovodJoin", CreateJoin, {"last_rank"}},
  };
  const std::vector<Question> questions = {
      {"HorovodRank", CreatePlain, ComputePlace<&hvd_topology::rank>},
      {"HorovodLocalRank", CreatePlain, ComputePlace<&hvd_topology::local_rank>},
      {"HorovodLocalSize", CreatePlain, ComputePlace<&hvd_topology::local_size>},
      {"HorovodSize", CreateWithSet, ComputeSize},
      {"HorovodProcessSetIncluded", CreateWithSet, ComputeIncluded},
  };
  for (const char* device : {"CPU", "GPU"}) {
    for (const Collective& c : collectives) {
      TF_KernelBuilder* builder = tf.TF_NewAsyncKernelBuilder(c.op, device, c.create, Compute, Destroy);
      if (std::string error = Register(c.op, device, builder, c.arguments); !error.empty()) return error;
    }
    for (const Question& q : questions) {
      TF_KernelBuilder* builder = tf.TF_NewKernelBuilder(q.op, device, q.create, q.compute, Destroy);
      if (std::string error = Register(q.op, device, builder, {"value"}); !error.empty()) return error;
    }
  }
  return "";
}

}  // namespace hvd::frameworks::tensorflow
