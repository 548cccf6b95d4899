#include "lane/lane.h"

#include <new>

#include "lane/entry.h"

namespace hvd::lane {

namespace {

PyObject* New(PyTypeObject* type, PyObject* arguments, PyObject* names) {
  static const char* keywords[] = {"table",   "session", "types",  "hides",    "empty_like", "adapter",
                                   "flights", "slice_s", "stream", "ordering", nullptr};
  PyObject *table, *session, *types, *hides, *empty_like, *adapter, *flights;
  PyObject *stream = Py_None, *ordering = Py_None;  // without: tensors on GPUs are left alone
  double slice_s;
  Ref wanted = Ref::Own(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "flight_table_type"));
  if (!wanted ||
      !PyArg_ParseTupleAndKeywords(arguments, names, "O!O!O!OOOO!d|OO", const_cast<char**>(keywords), &PyDict_Type,
                                   &table, &PyDict_Type, &session, &PyTuple_Type, &types, &hides, &empty_like, &adapter,
                                   wanted.get(), &flights, &slice_s, &stream, &ordering)) {
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
  terms.adapter = Ref::Share(adapter);
  terms.flights = Ref::Share(flights);
  terms.stream = Ref::Share(stream == Py_None ? nullptr : stream);
  terms.ordering = Ref::Share(ordering);
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
    {"submit_in_place", AsMethod(SubmitInPlace), METH_FASTCALL,
     "submit_in_place(key, tensor): submits the key's operation in place. The number of the flight; None: no entry "
     "fits."},
    {"submit_into", AsMethod(SubmitInto), METH_FASTCALL,
     "submit_into(key, tensor, output, finisher): submits the key's operation, whose result goes into another tensor. "
     "The number of the flight; None: no entry fits."},
    {"start_each", AsMethod(StartEach), METH_FASTCALL,
     "start_each(entries, tensors, started, wait_s): the same of entries that are in no table, a tensor each. Appends "
     "the flights to the empty list `started`, up to the first that does not fit. wait_s: seconds to "
     "wait, if all were submitted; True: all were successful and have ended."},
    {"start_alike", AsMethod(StartAlike), METH_FASTCALL,
     "start_alike(key, tensors, in_place, single, waits): submits a group, or a single tensor, whose results are of "
     "the tensors' forms. The flight; None: no entry fits."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(New)},
    {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_doc, const_cast<char*>("Repeats operations on the tensors of one framework.")},
    {0, nullptr},
};

PyType_Spec spec = {"horovod._native._lane.Lane", sizeof(Lane), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

PyObject* MakeLaneType(PyObject* module, PyObject* entry_type, PyObject* flight_table_type) {
  Ref type = Ref::Own(PyType_FromModuleAndSpec(module, &spec, nullptr));
  if (!type || PyObject_SetAttrString(type.get(), "entry_type", entry_type) < 0) return nullptr;
  return PyObject_SetAttrString(type.get(), "flight_table_type", flight_table_type) < 0 ? nullptr : type.Release();
}

}  // namespace hvd::lane
