#include "lane/flight.h"

#include <cstddef>

namespace hvd::lane {

namespace {

Flight* AsFlight(PyObject* self) { return reinterpret_cast<Flight*>(self); }

int Traverse(PyObject* self, visitproc visit, void* arg) {
  const Flight* flight = AsFlight(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(flight->session);
  Py_VISIT(flight->what);
  Py_VISIT(flight->keep);
  Py_VISIT(flight->result);
  Py_VISIT(flight->finisher);
  return 0;
}

int Clear(PyObject* self) {
  Flight* flight = AsFlight(self);
  Py_CLEAR(flight->session);
  Py_CLEAR(flight->what);
  Py_CLEAR(flight->keep);
  Py_CLEAR(flight->result);
  Py_CLEAR(flight->finisher);
  return 0;
}

// Nobody refers to it any more. Most have ended: Python is asked about the others only.
void Finalize(PyObject* self) {
  if (AsFlight(self)->handle == 0) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (!Ref::Own(PyObject_CallMethod(self, "dropped", nullptr))) PyErr_WriteUnraisable(self);
  PyErr_Restore(type, value, traceback);
}

void Dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  (void)Clear(self);
  FreeObject(self);
}

PyMemberDef members[] = {
    {"session", T_OBJECT, offsetof(Flight, session), 0, nullptr},
    {"what", T_OBJECT, offsetof(Flight, what), 0, nullptr},
    {"keep", T_OBJECT, offsetof(Flight, keep), 0, nullptr},
    {"result", T_OBJECT, offsetof(Flight, result), 0, nullptr},
    {"finisher", T_OBJECT, offsetof(Flight, finisher), 0, nullptr},
    {"handle", T_LONGLONG, offsetof(Flight, handle), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
    {Py_tp_finalize, reinterpret_cast<void*>(Finalize)},
    {Py_tp_traverse, reinterpret_cast<void*>(Traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(Clear)},
    {Py_tp_members, members},
    {Py_tp_doc, const_cast<char*>("A submitted operation, as the lane sees it; `dropped` is called when one that has "
                                  "not ended is dropped.")},
    {0, nullptr},
};

// Only what derives from it is ever made: a class of Python calls the finalizer.
PyType_Spec spec = {"horovod._native._lane.LaneFlight", sizeof(Flight), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

PyObject* Shared(PyObject* object) {
  Py_XINCREF(object);
  return object;
}

}  // namespace

PyObject* MakeFlightType(PyObject* module) { return PyType_FromModuleAndSpec(module, &spec, nullptr); }

PyObject* MakeFlight(const FlightTable& table, const Entry& entry, PyObject* keep, PyObject* result,
                     PyObject* finisher) {
  PyObject* made = PyType_GenericAlloc(table.type, 0);
  if (made == nullptr) return nullptr;
  Flight* flight = AsFlight(made);
  flight->session = Shared(entry.session);
  flight->what = Shared(entry.what);
  flight->keep = Shared(keep);
  flight->result = Shared(result);
  flight->finisher = Shared(finisher);
  flight->door = entry.door;
  flight->handle = *entry.handle;
  return made;
}

}  // namespace hvd::lane
