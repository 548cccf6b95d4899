#include "lane/lane.h"

#include <new>

#include "lane/entry.h"
#include "lane/reader.h"

namespace hvd::lane {

namespace {

constexpr int kMostDimensions = 16;
constexpr int kMostSignals = 1000;  // that raise one after the other: then something else is wrong

// What Python gave; the names are those of the constructor's arguments.
struct Terms {
  Ref table;       // dict: a key -> an Entry
  Ref session;     // dict of the module whose "stamp" tells which entries are valid
  Ref hides;       // of a tensor: whether its memory holds other values than it has; null: it never does
  Ref empty_like;  // a tensor -> a new one of the same form
  Ref empty;       // (tensor, shape) -> a new one of the same dtype
  Ref adapter;     // for an entry's take_other
  Ref stamp_name;
  Ref entry_type;
  double slice_s = 0;
};

struct Lane {
  PyObject_HEAD;
  Reader reader;
  Terms terms;
};

// ---- life

PyObject* New(PyTypeObject* type, PyObject* arguments, PyObject* names) {
  static const char* keywords[] = {"table", "session", "types",   "hides", "empty_like",
                                   "empty", "adapter", "slice_s", nullptr};
  PyObject *table, *session, *types, *hides, *empty_like, *empty, *adapter;
  double slice_s;
  if (!PyArg_ParseTupleAndKeywords(arguments, names, "O!O!O!OOOOd", const_cast<char**>(keywords), &PyDict_Type, &table,
                                   &PyDict_Type, &session, &PyTuple_Type, &types, &hides, &empty_like, &empty, &adapter,
                                   &slice_s)) {
    return nullptr;
  }
  PyObject* self = PyType_GenericAlloc(type, 0);
  if (self == nullptr) return nullptr;
  auto* lane = reinterpret_cast<Lane*>(self);
  new (&lane->reader) Reader;
  new (&lane->terms) Terms;
  Terms& terms = lane->terms;
  terms.table = Ref::Share(table);
  terms.session = Ref::Share(session);
  terms.hides = Ref::Share(hides == Py_None ? nullptr : hides);
  terms.empty_like = Ref::Share(empty_like);
  terms.empty = Ref::Share(empty);
  terms.adapter = Ref::Share(adapter);
  terms.stamp_name = Ref::Own(PyUnicode_InternFromString("stamp"));
  terms.entry_type = Ref::Own(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "entry_type"));
  terms.slice_s = slice_s;
  if (!terms.stamp_name || !terms.entry_type || !lane->reader.Open(types)) {
    Py_DECREF(self);
    return nullptr;
  }
  return self;
}

void Dealloc(PyObject* self) {
  auto* lane = reinterpret_cast<Lane*>(self);
  lane->terms.~Terms();
  lane->reader.~Reader();
  FreeObject(self);
}

// ---- one run

// The entry for a key if it may be used now; null if not, or with a Python error.
Ref Find(const Terms& terms, PyObject* key) {
  PyObject* found = PyDict_GetItemWithError(terms.table.get(), key);
  if (found == nullptr) {
    // A key that cannot be hashed: the long way refuses it, with the argument's name.
    if (PyErr_ExceptionMatches(PyExc_TypeError)) PyErr_Clear();
    return {};
  }
  if (!PyObject_TypeCheck(found, reinterpret_cast<PyTypeObject*>(terms.entry_type.get()))) return {};
  const auto* entry = reinterpret_cast<Entry*>(found);
  const PyObject* stamp = PyDict_GetItemWithError(terms.session.get(), terms.stamp_name.get());
  const bool armed = entry->op != nullptr && entry->handle != nullptr && entry->run != nullptr;
  return armed && !entry->busy && stamp != nullptr && entry->stamp == stamp ? Ref::Share(found) : Ref();
}

// The tensor's address if the operation can take it as its input; null if not, or with a Python error.
void* Aim(const Lane& lane, const hvd_op& op, PyObject* tensor) {
  void* address = lane.reader.AddressIf(tensor, {op.dtype, op.ndim, op.shape});
  if (address == nullptr || !lane.terms.hides) return address;
  Ref hidden = Ref::Own(PyObject_CallFunctionObjArgs(lane.terms.hides.get(), tensor, nullptr));
  return hidden && PyObject_IsTrue(hidden.get()) == 0 ? address : nullptr;
}

// One use of an entry by one call of a method: it is busy from the beginning to the end.
class Turn {
 public:
  Turn(const Lane& lane, PyObject* key, PyObject* tensor) : terms_(lane.terms), found_(Find(lane.terms, key)) {
    if (!found_) return;
    auto* entry = reinterpret_cast<Entry*>(found_.get());
    op_ = entry->op;
    handle_ = entry->handle;
    run_ = entry->run;
    entry->busy = 1;
    input_ = Aim(lane, *op_, tensor);
  }
  ~Turn() {
    if (found_) reinterpret_cast<Entry*>(found_.get())->busy = 0;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool aimed() const { return input_ != nullptr; }
  void* input() const { return input_; }
  hvd_op* op() const { return op_; }
  hvd_handle handle() const { return *handle_; }
  PyObject* entry() const { return found_.get(); }

  // What a method returns that has not run: the answer, or null if there is a Python error.
  static PyObject* Declined(PyObject* answer) {
    if (PyErr_Occurred() != nullptr) return nullptr;
    Py_INCREF(answer);
    return answer;
  }

  // The caller holds the tensors. Other threads run meanwhile; they find the entry busy.
  hvd_status Run(void* output) {
    op_->input = input_;
    op_->output = output;
    *handle_ = 0;
    hvd_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = run_(op_, 1, terms_.slice_s, handle_);
    Py_END_ALLOW_THREADS;
    return status;
  }

 private:
  const Terms& terms_;
  Ref found_;
  // As they were at the beginning: Python code that runs meanwhile may change the entry.
  hvd_op* op_ = nullptr;
  hvd_handle* handle_ = nullptr;
  RunFunction run_ = nullptr;
  void* input_ = nullptr;
};

// Passes on what Python has returned, or raised. A signal handler may raise before the first line of the function that
// takes the handle: then the engine still has the operation, and its tensors must live on. Another one may raise in
// `rescue` itself, so it is called until it ends; what was raised last comes out.
PyObject* OrRescue(PyObject* result, PyObject* entry, PyObject* keep) {
  for (int tries = 0; result == nullptr && tries < kMostSignals; ++tries) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Ref rescued = Ref::Own(PyObject_CallMethod(entry, "rescue", "(O)", keep));
    if (rescued) {
      PyErr_Restore(type, value, traceback);
      break;
    }
    for (PyObject* earlier : {type, value, traceback}) Py_XDECREF(earlier);
  }
  return result;
}

// After a run that has not simply succeeded: waits on. False: it has raised.
bool GoOn(PyObject* entry, hvd_status status, PyObject* keep) {
  PyObject* done = PyObject_CallMethod(entry, "go_on", "iO", static_cast<int>(status), keep);
  return static_cast<bool>(Ref::Own(OrRescue(done, entry, keep)));
}

bool TwoArguments(Py_ssize_t n) {
  if (n != 2) PyErr_Format(PyExc_TypeError, "A key and a tensor are wanted. Received: %zd arguments.", n);
  return n == 2;
}

// ---- the methods

PyObject* RunInPlace(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  if (!TwoArguments(n)) return nullptr;
  Turn turn(*reinterpret_cast<Lane*>(self), arguments[0], arguments[1]);
  if (!turn.aimed()) return Turn::Declined(Py_False);
  const hvd_status status = turn.Run(turn.input());
  if (status != HVD_OK && !GoOn(turn.entry(), status, arguments[1])) return nullptr;
  Py_RETURN_TRUE;
}

PyObject* RunAlike(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  if (!TwoArguments(n)) return nullptr;
  const Lane& lane = *reinterpret_cast<Lane*>(self);
  PyObject* tensor = arguments[1];
  Turn turn(lane, arguments[0], tensor);
  if (!turn.aimed()) return Turn::Declined(Py_None);
  Ref output = Ref::Own(PyObject_CallFunctionObjArgs(lane.terms.empty_like.get(), tensor, nullptr));
  if (!output) return nullptr;
  const hvd_op& op = *turn.op();
  void* address = lane.reader.AddressIf(output.get(), {op.dtype, op.ndim, op.shape});
  if (address == nullptr) return Turn::Declined(Py_None);
  const hvd_status status = turn.Run(address);
  if (status == HVD_OK) return output.Release();
  Ref keep = Ref::Own(PyTuple_Pack(2, tensor, output.get()));
  return keep && GoOn(turn.entry(), status, keep.get()) ? output.Release() : nullptr;
}

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

PyObject* RunPlaced(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  if (!TwoArguments(n)) return nullptr;
  const Lane& lane = *reinterpret_cast<Lane*>(self);
  PyObject* tensor = arguments[1];
  Turn turn(lane, arguments[0], tensor);
  Ref shape;
  int64_t extents[kMostDimensions];
  int32_t ndim = 0;
  int64_t bytes = 0;
  if (!turn.aimed() || !Foreseen(turn.entry(), &shape, extents, &ndim, &bytes)) return Turn::Declined(Py_None);
  Ref output = Ref::Own(PyObject_CallFunctionObjArgs(lane.terms.empty.get(), tensor, shape.get(), nullptr));
  if (!output) return nullptr;
  hvd_op* op = turn.op();
  void* address = lane.reader.AddressIf(output.get(), {op->dtype, ndim, extents});
  if (address == nullptr) return Turn::Declined(Py_None);
  op->output_bytes = bytes;
  const hvd_status status = turn.Run(address);
  op->output_bytes = 0;
  if (status == HVD_OK && turn.handle() == 0) return output.Release();
  Ref keep = Ref::Own(PyTuple_Pack(2, tensor, output.get()));
  if (!keep) return nullptr;
  PyObject* other = PyObject_CallMethod(turn.entry(), "take_other", "iOOO", static_cast<int>(status), tensor,
                                        output.get(), lane.terms.adapter.get());
  return OrRescue(other, turn.entry(), keep.get());
}

// ---- the type

template <typename Function>
PyCFunction AsMethod(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"run_in_place", AsMethod(RunInPlace), METH_FASTCALL,
     "run_in_place(key, tensor): runs the key's operation in place. False: no entry fits key, session and tensor."},
    {"run_alike", AsMethod(RunAlike), METH_FASTCALL,
     "run_alike(key, tensor): the result, a new tensor of the same form. None: no entry fits."},
    {"run_placed", AsMethod(RunPlaced), METH_FASTCALL,
     "run_placed(key, tensor): the result, which probably is as long as the last one. None: no entry fits."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(New)},
    {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_doc, const_cast<char*>("Repeats prepared operations on the tensors of one framework.")},
    {0, nullptr},
};

PyType_Spec spec = {"horovod._native._lane.Lane", sizeof(Lane), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

PyObject* MakeLaneType(PyObject* module, PyObject* entry_type) {
  PyObject* type = PyType_FromModuleAndSpec(module, &spec, nullptr);
  if (type != nullptr && PyObject_SetAttrString(type, "entry_type", entry_type) < 0) Py_CLEAR(type);
  return type;
}

}  // namespace hvd::lane
