#include "lane/reader.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace hvd::lane {

namespace {

constexpr const char* kAttribute = "__dlpack_c_exchange_api__";
constexpr const char* kCapsule = "dlpack_exchange_api";

// Null: the type has none that this code understands.
const DlExchangeTable* FindTable(PyTypeObject* type) {
  Ref capsule = Ref::Own(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), kAttribute));
  void* found = capsule ? PyCapsule_GetPointer(capsule.get(), kCapsule) : nullptr;
  PyErr_Clear();
  const auto* table = static_cast<const DlExchangeTable*>(found);
  while (table != nullptr && table->major != kDlMajor) table = table->previous;
  return table != nullptr && table->tensor_from_object != nullptr ? table : nullptr;
}

int DtypeOf(DlDataType type) {
  if (type.lanes != 1) return -1;
  const int by_size = type.bits == 8 ? 0 : type.bits == 16 ? 1 : type.bits == 32 ? 2 : type.bits == 64 ? 3 : -1;
  if (by_size < 0) return -1;
  static constexpr int kInts[] = {HVD_INT8, HVD_INT16, HVD_INT32, HVD_INT64};
  static constexpr int kUnsigneds[] = {HVD_UINT8, HVD_UINT16, HVD_UINT32, HVD_UINT64};
  static constexpr int kFloats[] = {-1, HVD_FLOAT16, HVD_FLOAT32, HVD_FLOAT64};
  switch (type.code) {
    case kDlInt:
      return kInts[by_size];
    case kDlUnsigned:
      return kUnsigneds[by_size];
    case kDlFloat:
      return kFloats[by_size];
    case kDlBfloat:
      return type.bits == 16 ? HVD_BFLOAT16 : -1;
    case kDlBool:
      return type.bits == 8 ? HVD_BOOL : -1;
    case kDlFloat8E4m3fn:
      return type.bits == 8 ? HVD_FLOAT8_E4M3FN : -1;
    case kDlFloat8E5m2:
      return type.bits == 8 ? HVD_FLOAT8_E5M2 : -1;
    default:
      return -1;
  }
}

// Of a buffer's format in the machine's own byte order. 'l' and 'q' are both found for 64 bits.
int DtypeOf(const char* format) {
  if (format == nullptr || format[0] == '\0' || format[1] != '\0') return -1;
  switch (format[0]) {
    case 'b':
      return HVD_INT8;
    case 'B':
      return HVD_UINT8;
    case 'h':
      return HVD_INT16;
    case 'H':
      return HVD_UINT16;
    case 'i':
      return HVD_INT32;
    case 'I':
      return HVD_UINT32;
    case 'l':
    case 'q':
      return HVD_INT64;
    case 'L':
    case 'Q':
      return HVD_UINT64;
    case 'e':
      return HVD_FLOAT16;
    case 'f':
      return HVD_FLOAT32;
    case 'd':
      return HVD_FLOAT64;
    case '?':
      return HVD_BOOL;
    default:
      return -1;
  }
}

// Drops the error of an object that cannot be read; what a signal handler raised, KeyboardInterrupt say, stays.
void ForgetRefusal() {
  if (PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
}

bool Contiguous(const DlTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  int64_t expected = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

void* ByTable(const DlExchangeTable& table, PyObject* object, const Form& form) {
  DlTensor tensor;
  if (table.tensor_from_object(object, &tensor) != 0) {
    ForgetRefusal();  // such as a sparse tensor, or one of a tracer: the long way knows what to say
    return nullptr;
  }
  if (!form.Lies(tensor.device) || !form.Fits(DtypeOf(tensor.dtype), tensor.ndim, tensor.shape)) return nullptr;
  return Contiguous(tensor) ? static_cast<char*>(tensor.data) + tensor.byte_offset : nullptr;
}

void* ByBuffer(PyObject* object, const Form& form) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(object, &buffer, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    ForgetRefusal();
    return nullptr;
  }
  static_assert(sizeof(Py_ssize_t) == sizeof(int64_t));
  const auto* shape = reinterpret_cast<const int64_t*>(buffer.shape);
  void* address = form.Fits(DtypeOf(buffer.format), buffer.ndim, shape) ? buffer.buf : nullptr;
  PyBuffer_Release(&buffer);  // the caller holds the object until the operation is done, as with an address asked for
  return address;
}

}  // namespace

bool Form::Empty() const {
  return shape == nullptr ? elements == 0 : std::find(shape, shape + ndim, 0) != shape + ndim;
}

bool Form::Fits(int32_t found_dtype, int32_t found_ndim, const int64_t* found) const {
  if (found_dtype != dtype) return false;
  if (shape != nullptr) return found_ndim == ndim && std::equal(shape, shape + ndim, found);
  return std::accumulate(found, found + found_ndim, int64_t{1}, std::multiplies<>()) == elements;
}

bool Form::Lies(DlDevice found) const {
  if (place == 0) return found.type == kDlCpu;
  return (found.type == kDlCuda || found.type == kDlRocm) && found.id == place - 1;
}

bool Reader::Open(PyObject* types) {
  const Py_ssize_t n = PyTuple_Size(types);
  if (n < 0 || n > kMostTypes) {
    if (n > kMostTypes) PyErr_Format(PyExc_ValueError, "At most %d types can be read; got %zd.", kMostTypes, n);
    return false;
  }
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* type = PyTuple_GetItem(types, i);
    if (!PyType_Check(type)) {
      PyErr_Format(PyExc_TypeError, "types must hold types. Received: %R.", type);
      return false;
    }
    auto* of = reinterpret_cast<PyTypeObject*>(type);
    const DlExchangeTable* table = FindTable(of);
    // A type with neither would raise an error in every call, only to have it dropped.
    if (table != nullptr || PyType_GetSlot(of, Py_bf_getbuffer) != nullptr) entries_[i] = {of, table};
  }
  return true;
}

void* Reader::AddressIf(PyObject* tensor, const Form& form) const {
  const PyTypeObject* type = Py_TYPE(tensor);
  for (const Entry& entry : entries_) {
    if (entry.type != type) continue;
    if (form.Empty()) return nullptr;
    if (entry.table != nullptr) return ByTable(*entry.table, tensor, form);
    return form.place == 0 ? ByBuffer(tensor, form) : nullptr;
  }
  return nullptr;
}

}  // namespace hvd::lane
