// The methods that run an operation and wait for it.
#include "lane/turn.h"

namespace hvd::lane {

PyObject* RunInPlace(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  if (!WantArguments(2, n)) return nullptr;
  const Lane& lane = AsLane(self);
  Turn turn(lane, Find(lane.terms, arguments[0]), 1);
  if (!turn.usable() || !turn.Aim(0, arguments[1])) return Turn::Declined(Py_False);
  turn.op().output = turn.input();
  const hvd_status status = turn.Run();
  if (!turn.Ended(status) && !GoOn(turn.entry(), status, arguments[1])) return nullptr;
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
  op.output = lane.reader.AddressIf(output.get(), {op.place, op.dtype, op.ndim, op.shape});
  if (op.output == nullptr) return Turn::Declined(Py_None);
  const hvd_status status = turn.Run();
  if (turn.Ended(status)) return output.Release();
  Ref keep = Ref::Own(PyTuple_Pack(2, tensor, output.get()));
  return keep && GoOn(turn.entry(), status, keep.get()) ? output.Release() : nullptr;
}

PyObject* RunPlaced(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  if (!WantArguments(2, n)) return nullptr;
  const Lane& lane = AsLane(self);
  PyObject* tensor = arguments[1];
  Turn turn(lane, Find(lane.terms, arguments[0]), 1);
  if (!turn.usable()) return Turn::Declined(Py_None);
  const auto* entry = reinterpret_cast<Entry*>(turn.entry());
  Ref prototype = Ref::Share(entry->placed);
  const int64_t elements = entry->placed_elements, bytes = entry->placed_bytes;
  if (!turn.Aim(0, tensor)) return Turn::Declined(Py_None);
  hvd_op& op = turn.op();
  const bool placed = prototype && prototype.get() != Py_None;  // else into the core's memory
  Ref output = Ref::Share(Py_None);
  op.output = nullptr;
  if (placed) {
    output = Ref::Own(PyObject_CallFunctionObjArgs(lane.terms.empty_like.get(), prototype.get(), nullptr));
    if (!output) return nullptr;
    op.output = lane.reader.AddressIf(output.get(), {op.place, op.dtype, 0, nullptr, elements});
    if (op.output == nullptr) return Turn::Declined(Py_None);
    op.output_bytes = bytes;
  }
  const hvd_status status = turn.Run();
  op.output_bytes = 0;
  if (placed && status == HVD_OK && turn.handle() == 0) return output.Release();
  Ref keep = Ref::Own(PyTuple_Pack(2, tensor, output.get()));
  if (!keep) return nullptr;
  PyObject* other = PyObject_CallMethod(turn.entry(), "take_other", "iOOO", static_cast<int>(status), tensor,
                                        output.get(), lane.terms.adapter.get());
  return OrRescue(other, turn.entry(), keep.get());
}

}  // namespace hvd::lane
