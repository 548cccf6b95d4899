#include "frameworks/tensorflow/operators.h"

#include <vector>

#include "border/border.h"
#include "frameworks/tensorflow/c_api.h"
#include "frameworks/tensorflow/failure.h"

namespace hvd::frameworks::tensorflow {
namespace {

using Inference = void (*)(TF_ShapeInferenceContext*, TF_Status*);

// What TensorFlow calls.
template <Inference kShapes>
void Infer(TF_ShapeInferenceContext* c, TF_Status* status) {
  border::Guarded([=] { kShapes(c, status); },
                  [=](hvd_status code, const char* why) { tf.TF_SetStatus(status, CodeFor(code), why); });
}

struct Operator {
  const char* name;
  std::vector<const char*> inputs, outputs, attributes;
  Inference shapes;
};

ShapePtr NewShape() { return ShapePtr(tf.TF_NewShapeHandle()); }

// Every output has the shape of its input.
void SameShapes(TF_ShapeInferenceContext* c, TF_Status* status) {
  const int64_t n = tf.TF_ShapeInferenceContextNumInputs(c);
  for (int i = 0; i < n && tf.TF_GetCode(status) == kOk; ++i) {
    const ShapePtr shape = NewShape();
    tf.TF_ShapeInferenceContextGetInput(c, i, shape.get(), status);
    if (tf.TF_GetCode(status) == kOk) tf.TF_ShapeInferenceContextSetOutput(c, i, shape.get(), status);
  }
}

// Output i: the rows of input i, but how many only the members know together.
void AnyRowsOf(TF_ShapeInferenceContext* c, int i, TF_Status* status) {
  const ShapePtr shape = NewShape(), row = NewShape(), result = NewShape();
  tf.TF_ShapeInferenceContextGetInput(c, i, shape.get(), status);
  if (tf.TF_GetCode(status) != kOk) return;
  const bool known = tf.TF_ShapeInferenceContextRankKnown(c, shape.get()) != 0;
  // A scalar is refused when it runs, on all members.
  if (!known || tf.TF_ShapeInferenceContextRank(c, shape.get()) == 0) return;
  tf.TF_ShapeInferenceContextSubshape(c, shape.get(), 1, tf.TF_ShapeInferenceContextRank(c, shape.get()), row.get(),
                                      status);
  if (tf.TF_GetCode(status) != kOk) return;
  const ShapePtr unknown(tf.TF_ShapeInferenceContextVectorFromSize(c, static_cast<size_t>(-1)));
  tf.TF_ShapeInferenceContextConcatenateShapes(c, unknown.get(), row.get(), result.get(), status);
  if (tf.TF_GetCode(status) == kOk) tf.TF_ShapeInferenceContextSetOutput(c, i, result.get(), status);
}

void AnyRows(TF_ShapeInferenceContext* c, TF_Status* status) {
  const int64_t n = tf.TF_ShapeInferenceContextNumInputs(c);
  tf.TF_ShapeInferenceContextSetUnknownShape(c, status);
  for (int i = 0; i < n && tf.TF_GetCode(status) == kOk; ++i) AnyRowsOf(c, i, status);
}

void AlltoallShapes(TF_ShapeInferenceContext* c, TF_Status* status) {
  tf.TF_ShapeInferenceContextSetUnknownShape(c, status);
  if (tf.TF_GetCode(status) == kOk) AnyRowsOf(c, 0, status);
}

void Scalar(TF_ShapeInferenceContext* c, TF_Status* status) {
  const ShapePtr scalar(tf.TF_ShapeInferenceContextScalar(c));
  tf.TF_ShapeInferenceContextSetOutput(c, 0, scalar.get(), status);
}

std::vector<const char*> And(std::vector<const char*> some, const std::vector<const char*>& more) {
  some.insert(some.end(), more.begin(), more.end());
  return some;
}

std::vector<Operator> Operators() {
  // tensor_name: what the members negotiate; empty = the node's name. blocking: the thread that runs the kernel waits
  // anyhow (eager mode), so it may drive the engine. Factors are texts, because TensorFlow's float attributes hold no
  // doubles.
  const std::vector<const char*> named = {"tensor_name: string = ''", "process_set_id: int = 0",
                                          "blocking: bool = false"};
  const std::vector<const char*> collective = And({"T: list(type) >= 1"}, named);
  const std::vector<const char*> reduction =
      And(collective, {"reduce_op: int = 1", "prescale_factor: string = '1'", "postscale_factor: string = '1'"});
  // tensor_names: each tensor is an operation of its own of this name, which begins behind the last slash of the
  // node's. waits: their kernel waits for a moment, which blocks nobody for long.
  const std::vector<const char*> each = {"tensor_names: list(string) = []", "waits: bool = false"};
  return {
      {"HorovodAllreduce", {"tensors: T"}, {"outputs: T"}, And(reduction, each), Infer<SameShapes>},
      {"HorovodReducescatter", {"tensors: T"}, {"outputs: T"}, reduction, Infer<AnyRows>},
      {"HorovodAllgather", {"tensors: T"}, {"outputs: T"}, collective, Infer<AnyRows>},
      {"HorovodBroadcast", {"tensors: T"}, {"outputs: T"}, And(collective, {"root_rank: int"}), Infer<SameShapes>},
      {"HorovodAlltoall",
       {"tensor: T", "splits: int32"},
       {"output: T", "received_splits: int32"},
       And({"T: type"}, named),
       Infer<AlltoallShapes>},
      {"HorovodJoin", {}, {"last_rank: int32"}, {"blocking: bool = false"}, Infer<Scalar>},
      {"HorovodRank", {}, {"value: int32"}, {}, Infer<Scalar>},
      {"HorovodSize", {}, {"value: int32"}, {"process_set_id: int = 0"}, Infer<Scalar>},
      {"HorovodLocalRank", {}, {"value: int32"}, {}, Infer<Scalar>},
      {"HorovodLocalSize", {}, {"value: int32"}, {}, Infer<Scalar>},
      {"HorovodProcessSetIncluded", {}, {"value: int32"}, {"process_set_id: int = 0"}, Infer<Scalar>},
  };
}

}  // namespace

std::string RegisterOperators() {
  for (const Operator& op : Operators()) {
    TF_OpDefinitionBuilder* builder = tf.TF_NewOpDefinitionBuilder(op.name);
    for (const char* spec : op.attributes) tf.TF_OpDefinitionBuilderAddAttr(builder, spec);
    for (const char* spec : op.inputs) tf.TF_OpDefinitionBuilderAddInput(builder, spec);
    for (const char* spec : op.outputs) tf.TF_OpDefinitionBuilderAddOutput(builder, spec);
    // Stateful: not folded, merged or pruned. That independent ones may still run at the same time is known to
    // TensorFlow in Python (python/horovod/tensorflow/collectives/library.py).
    tf.TF_OpDefinitionBuilderSetIsStateful(builder, true);
    tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, op.shapes);
    const StatusPtr status = NewStatus();
    tf.TF_RegisterOpDefinition(builder, status.get());
    if (!Ok(status)) return std::string(op.name) + ": " + tf.TF_Message(status.get());
  }
  return "";
}

}  // namespace hvd::frameworks::tensorflow
