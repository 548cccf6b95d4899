#include "frameworks/tensorflow/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "border/border.h"
#include "frameworks/tensorflow/c_api.h"
#include "frameworks/tensorflow/call.h"
#include "frameworks/tensorflow/dtypes.h"
#include "frameworks/tensorflow/failure.h"
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
  std::vector<std::string> Texts(const char* name) {
    int32_t n = 0, bytes = 0;
    if (Ok(status_)) tf.TF_OpKernelConstruction_GetAttrSize(node_, name, &n, &bytes, status_.get());
    if (!Ok(status_) || n <= 0) return {};
    std::vector<char*> values(static_cast<size_t>(n));
    std::vector<size_t> lengths(values.size());
    std::string storage(static_cast<size_t>(bytes), '\0');
    tf.TF_OpKernelConstruction_GetAttrStringList(node_, name, values.data(), lengths.data(), n, storage.data(),
                                                 storage.size(), status_.get());
    std::vector<std::string> texts;
    for (size_t i = 0; Ok(status_) && i < values.size(); ++i) texts.emplace_back(values[i], lengths[i]);
    return texts;
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

const char* OperationName(hvd_op_type type) {
  static constexpr const char* kNames[] = {"allreduce", "allgather", "broadcast", "alltoall", "reducescatter"};
  return kNames[type];
}

template <hvd_op_type kType>
void ReadCollective(Reader* node, Attributes* a) {
  a->type = kType;
  const std::string given = node->Text("tensor_name");
  a->name = std::string(OperationName(kType)) + "." + (given.empty() ? node->NodeName() : given);
  a->process_set = node->Int("process_set_id");
  a->blocking = node->Flag("blocking");
  if (kType == HVD_BROADCAST) a->root_rank = node->Int("root_rank");
  if (kType == HVD_ALLREDUCE || kType == HVD_REDUCESCATTER) {
    a->reduce_op = node->Int("reduce_op");
    a->prescale = node->Number("prescale_factor");
    a->postscale = node->Number("postscale_factor");
  }
  if (kType == HVD_ALLREDUCE) {
    const std::string own = node->NodeName();
    const std::string before = std::string(OperationName(kType)) + "." + own.substr(0, own.rfind('/') + 1);  // none: 0
    for (const std::string& each : node->Texts("tensor_names")) a->names.push_back(before + each);
    a->waits = node->Flag("waits");
  }
}

hvd_tensorflow_stream_fn stream_of_context = nullptr;  // set before the kernels that use it are registered

template <hvd_op_type kType>
void ReadOnGpu(Reader* node, Attributes* a) {
  ReadCollective<kType>(node, a);
  a->stream_of = stream_of_context;
  a->waits = false;  // the device is not waited for
}

void ReadJoin(Reader* node, Attributes* a) {
  a->type = HVD_JOIN;
  a->name = "join";
  a->blocking = node->Flag("blocking");
}

void ReadNothing(Reader*, Attributes*) {}
void ReadSet(Reader* node, Attributes* a) { a->process_set = node->Int("process_set_id"); }

// A kernel is its attributes.
template <void (*kRead)(Reader*, Attributes*)>
void* Create(TF_OpKernelConstruction* construction) {
  std::unique_ptr<Attributes> attributes;
  border::Guarded(
      [&] {
        Reader node(construction);
        auto made = std::make_unique<Attributes>();
        kRead(&node, made.get());
        if (!node.ok()) return node.Report();
        attributes = std::move(made);
      },
      [&](hvd_status code, const char* why) {
        tf.TF_OpKernelConstruction_Failure(construction, StatusFor(code, why).get());
      });
  return attributes.release();
}

void Destroy(void* attributes) { delete static_cast<Attributes*>(attributes); }

void RunCollective(void* attributes, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  Call::Start(*static_cast<const Attributes*>(attributes), context, done);
}

// ---- operators that answer a number

template <int32_t hvd_topology::* kField>
hvd_status Place(const Attributes&, int32_t* value) {
  hvd_topology place = {};
  const hvd_status code = hvd_get_topology(&place);
  *value = place.*kField;
  return code;
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

hvd_status Size(const Attributes& attributes, int32_t* value) {
  std::vector<int32_t> ranks;
  const hvd_status code = Members(attributes.process_set, &ranks);
  *value = static_cast<int32_t>(ranks.size());
  return code;
}

hvd_status Included(const Attributes& attributes, int32_t* value) {
  std::vector<int32_t> ranks;
  if (const hvd_status code = Members(attributes.process_set, &ranks); code != HVD_OK) return code;
  hvd_topology place = {};
  const hvd_status code = hvd_get_topology(&place);
  *value = static_cast<int32_t>(std::count(ranks.begin(), ranks.end(), place.rank));
  return code;
}

template <hvd_status (*kAnswer)(const Attributes&, int32_t* value)>
void Answer(void* attributes, TF_OpKernelContext* context) {
  const auto fail = [&](hvd_status code, const char* why) {
    tf.TF_OpKernelContext_Failure(context, StatusFor(code, why).get());
  };
  border::Guarded(
      [&] {
        int32_t value = 0;
        const hvd_status code = kAnswer(*static_cast<const Attributes*>(attributes), &value);
        if (code != HVD_OK) return fail(code, hvd_last_error());
        const StatusPtr status = NewStatus();
        const TensorPtr out(tf.TF_AllocateOutput(context, 0, kInt32, nullptr, 0, sizeof value, status.get()));
        if (!Ok(status)) return tf.TF_OpKernelContext_Failure(context, status.get());
        std::memcpy(tf.TF_TensorData(out.get()), &value, sizeof value);
      },
      fail);
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
      {"HorovodAllreduce", Create<ReadCollective<HVD_ALLREDUCE>>, {"tensors", "outputs"}},
      {"HorovodReducescatter", Create<ReadCollective<HVD_REDUCESCATTER>>, {"tensors", "outputs"}},
      {"HorovodAllgather", Create<ReadCollective<HVD_ALLGATHER>>, {"tensors", "outputs"}},
      {"HorovodBroadcast", Create<ReadCollective<HVD_BROADCAST>>, {"tensors", "outputs"}},
      {"HorovodAlltoall", Create<ReadCollective<HVD_ALLTOALL>>, {"tensor", "splits", "output", "received_splits"}},
      {"HorovodJoin", Create<ReadJoin>, {"last_rank"}},
  };
  const std::vector<Question> questions = {
      {"HorovodRank", Create<ReadNothing>, Answer<Place<&hvd_topology::rank>>},
      {"HorovodLocalRank", Create<ReadNothing>, Answer<Place<&hvd_topology::local_rank>>},
      {"HorovodLocalSize", Create<ReadNothing>, Answer<Place<&hvd_topology::local_size>>},
      {"HorovodSize", Create<ReadSet>, Answer<Size>},
      {"HorovodProcessSetIncluded", Create<ReadSet>, Answer<Included>},
  };
  for (const char* device : {"CPU", "GPU"}) {
    for (const Collective& c : collectives) {
      TF_KernelBuilder* builder = tf.TF_NewAsyncKernelBuilder(c.op, device, c.create, RunCollective, Destroy);
      if (std::string error = Register(c.op, device, builder, c.arguments); !error.empty()) return error;
    }
    for (const Question& q : questions) {
      TF_KernelBuilder* builder = tf.TF_NewKernelBuilder(q.op, device, q.create, q.compute, Destroy);
      if (std::string error = Register(q.op, device, builder, {"value"}); !error.empty()) return error;
    }
  }
  return "";
}

std::string RegisterGpuKernels(hvd_tensorflow_stream_fn stream_of) {
  if (tf.TF_NewAsyncKernelBuilder == nullptr) return "hvd_register_tensorflow has not gone first";
  stream_of_context = stream_of;
  // What gradients and weights are made of. The rest, 32-bit integers first of all, TensorFlow has in the host's
  // memory, and lists of several types go there.
  constexpr hvd_dtype kKinds[] = {HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT32, HVD_FLOAT64, HVD_INT64};
  const std::pair<const char*, CreateFn> operators[] = {{"HorovodAllreduce", Create<ReadOnGpu<HVD_ALLREDUCE>>},
                                                        {"HorovodBroadcast", Create<ReadOnGpu<HVD_BROADCAST>>}};
  for (const auto& [op, create] : operators) {
    for (const hvd_dtype kind : kKinds) {
      TF_KernelBuilder* builder = tf.TF_NewAsyncKernelBuilder(op, "GPU", create, RunCollective, Destroy);
      const StatusPtr status = NewStatus();
      tf.TF_KernelBuilder_TypeConstraint(builder, "T", TensorflowType(kind), status.get());
      if (!Ok(status)) return std::string(op) + ": " + tf.TF_Message(status.get());
      tf.TF_KernelBuilder_Priority(builder, 1);
      if (std::string error = Register(op, "GPU", builder, {}); !error.empty()) return error;
    }
  }
  return "";
}

}  // namespace hvd::frameworks::tensorflow
