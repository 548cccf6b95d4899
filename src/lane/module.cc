// The extension module horovod._native._lane; horovod/_native/lane.py says what it is for.
#include "lane/entry.h"
#include "lane/flight.h"
#include "lane/lane.h"
#include "lane/python.h"

namespace {

int Execute(PyObject* module) {
  using hvd::lane::Ref;
  Ref entry = Ref::Own(hvd::lane::MakeEntryType(module));
  Ref flight = Ref::Own(entry ? hvd::lane::MakeFlightType(module) : nullptr);
  Ref table = Ref::Own(flight ? hvd::lane::MakeFlightTableType(module, flight.get()) : nullptr);
  Ref lane = Ref::Own(table ? hvd::lane::MakeLaneType(module, entry.get(), table.get()) : nullptr);
  if (!lane) return -1;
  if (PyModule_AddObjectRef(module, "LaneEntry", entry.get()) < 0) return -1;
  if (PyModule_AddObjectRef(module, "LaneFlight", flight.get()) < 0) return -1;
  if (PyModule_AddObjectRef(module, "FlightTable", table.get()) < 0) return -1;
  return PyModule_AddObjectRef(module, "Lane", lane.get());
}

PyModuleDef_Slot slots[] = {{Py_mod_exec, reinterpret_cast<void*>(Execute)}, {0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_lane", "See horovod._native.lane.", 0, nullptr, slots, nullptr, nullptr, nullptr};

}  // namespace

// NOLINTNEXTLINE(bugprone-reserved-identifier): Python asks for this name.
PyMODINIT_FUNC PyInit__lane() { return PyModuleDef_Init(&definition); }
