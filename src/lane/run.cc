// The methods that run an operation and wait for it.
#include "lane/turn.h"

namespace hvd::lane {

namespace {

constexpr int kMostDimensions = 16;

// The shape that the last result had; false if none is foreseen, or with a Python error.
bool Foreseen(PyObject* entry, Ref* shape, int64_t* extents, int32_t* ndim, int64_t* bytes) {
  *shape = Ref::Own(PyObject_GetAttrString(entry, "placed"));
  Ref size = Ref::Own(PyObject_GetAttrString(entry, "placed_bytes"));
  const Py_ssize_t n = *shape && PyTuple_Check(shape->get()) ? PyTuple_Size(shape->get()) : -1;
  const bool known = size && n >= 0 && n <= kMostDimensions;
  if (known) {
    for (Py_ssize_t i = 0; i < n; ++i) extents[i] = PyLong_AsLongLong(PyTuple_GetItem(shape->get(), i));
    *ndim = static_cast<int32_t>(n);
    *bytes = PyLong_AsLongLong(size.get());
  }
  return known && PyErr_Occurred() == nullptr;
}

}  // namespace

PyObject* RunInPlace(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  if (!WantArguments(2, n)) return nullptr;
  const Lane& lane = AsLane(self);
  Turn turn(lane, Find(lane.terms, arguments[0]), 1);
  if (!turn.usable() || !turn.Aim(0, arguments[1])) return Turn::Declined(Py_False);
  turn.op().output = turn.input();
  const hvd_status status = turn.Run();
  if (status != HVD_OK && !GoOn(turn.entry(), status, arguments[1])) return nullptr;
  Py_RETURN_TRUE;
}

PyObject* RunAlike(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  if (!WantArguments(2, n)) return nullptr;
  const Lane& lane = AsLane(self);
  PyObject* tensor = arguments[1];
  Turn turn(lane, Find(lane.terms, arguments[0]), 1);
  if (!turn.usable() || !turn.Aim(0, tensor)) return Turn::Declined(Py_None);
  Ref output = Ref::Own(PyObject_CallFunctionObjArgs(lane.terms.empty_like.get(), tensor, nullptr));
  if (!output) return nullptr;
  hvd_op& op = turn.op();
  op.output = lane.reader.AddressIf(output.get(), {op.dtype, op.ndim, op.shape});
  if (op.output == nullptr) return Turn::Declined(Py_None);
  const hvd_status status = turn.Run();
  if (status == HVD_OK) return output.Release();
  Ref keep = Ref::Own(PyTuple_Pack(2, tensor, output.get()));
  return keep && GoOn(turn.entry(), status, keep.get()) ? output.Release() : nullptr;
}

PyObject* RunPlaced(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  if (!WantArguments(2, n)) return nullptr;
  const Lane& lane = AsLane(self);
  PyObject* tensor = arguments[1];
  Turn turn(lane, Find(lane.terms, arguments[0]), 1);
  Ref shape;
  int64_t extents[kMostDimensions];
  int32_t ndim = 0;
  int64_t bytes = 0;
  if (!turn.usable() || !turn.Aim(0, tensor) || !Foreseen(turn.entry(), &shape, extents, &ndim, &bytes))
    return Turn::Declined(Py_None);
  Ref output = Ref::Own(PyObject_CallFunctionObjArgs(lane.terms.empty.get(), tensor, shape.get(), nullptr));
  if (!output) return nullptr;
  hvd_op& op = turn.op();
  op.output = lane.reader.AddressIf(output.get(), {op.dtype, ndim, extents});
  if (op.output == nullptr) return Turn::Declined(Py_None);
  op.output_bytes = bytes;
  const hvd_status status = turn.Run();
  op.output_bytes = 0;
  if (status == HVD_OK && turn.handle() == 0) return output.Release();
  Ref keep = Ref::Own(PyTuple_Pack(2, tensor, output.get()));
  if (!keep) return nullptr;
  PyObject* other = PyObject_CallMethod(turn.entry(), "take_other", "iOOO", static_cast<int>(status), tensor,
                                        output.get(), lane.terms.adapter.get());
  return OrRescue(other, turn.entry(), keep.get());
}

}  // namespace hvd::lane
