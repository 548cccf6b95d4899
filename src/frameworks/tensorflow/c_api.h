// TensorFlow's C API as far as the operators need it, declared here and bound at run time to the TensorFlow that the
// process has loaded: one library for every version, and none needed to load it. The functions are stable public API
// ("experimental" in name, unchanged from 2.13 to 2.21); what each does is said in TensorFlow's tensorflow/c/*.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

extern "C" {
typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_AsyncOpKernelDoneCallback TF_AsyncOpKernelDoneCallback;
typedef struct TF_StringView {
  const char* data;
  size_t len;
} TF_StringView;
}

namespace hvd::frameworks::tensorflow {

// TF_Code and TF_DataType, the numbers used here.
enum Code : int {
  kOk = 0,
  kUnknown = 2,
  kInvalidArgument = 3,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10
};
enum Type : int { kInt32 = 3, kInt64 = 9 };

// result, name, parameters
#define HVD_TF_FUNCTIONS(X)                                                                                         \
  X(TF_Status*, TF_NewStatus, (void))                                                                               \
  X(void, TF_DeleteStatus, (TF_Status*))                                                                            \
  X(void, TF_SetStatus, (TF_Status*, int code, const char* message))                                                \
  X(int, TF_GetCode, (const TF_Status*))                                                                            \
  X(const char*, TF_Message, (const TF_Status*))                                                                    \
  X(TF_Tensor*, TF_NewTensor,                                                                                       \
    (int type, const int64_t* dims, int num_dims, void* data, size_t len,                                           \
     void (*deallocator)(void* data, size_t len, void* arg), void* arg))                                            \
  X(void, TF_DeleteTensor, (TF_Tensor*))                                                                            \
  X(int, TF_TensorType, (const TF_Tensor*))                                                                         \
  X(int, TF_NumDims, (const TF_Tensor*))                                                                            \
  X(int64_t, TF_Dim, (const TF_Tensor*, int index))                                                                 \
  X(size_t, TF_TensorByteSize, (const TF_Tensor*))                                                                  \
  X(void*, TF_TensorData, (const TF_Tensor*))                                                                       \
  X(TF_OpDefinitionBuilder*, TF_NewOpDefinitionBuilder, (const char* name))                                         \
  X(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder*, const char* spec))                               \
  X(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder*, const char* spec))                              \
  X(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder*, const char* spec))                             \
  X(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder*, bool))                                     \
  X(void, TF_OpDefinitionBuilderSetShapeInferenceFunction,                                                          \
    (TF_OpDefinitionBuilder*, void (*)(TF_ShapeInferenceContext*, TF_Status*)))                                     \
  X(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder*, TF_Status*))                                           \
  X(int64_t, TF_ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext*))                                        \
  X(TF_ShapeHandle*, TF_NewShapeHandle, (void))                                                                     \
  X(void, TF_DeleteShapeHandle, (TF_ShapeHandle*))                                                                  \
  X(void, TF_ShapeInferenceContextGetInput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))          \
  X(void, TF_ShapeInferenceContextSetOutput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))         \
  X(void, TF_ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext*, TF_Status*))                         \
  X(TF_ShapeHandle*, TF_ShapeInferenceContextScalar, (TF_ShapeInferenceContext*))                                   \
  X(TF_ShapeHandle*, TF_ShapeInferenceContextVectorFromSize, (TF_ShapeInferenceContext*, size_t))                   \
  X(int, TF_ShapeInferenceContextRankKnown, (TF_ShapeInferenceContext*, TF_ShapeHandle*))                           \
  X(int64_t, TF_ShapeInferenceContextRank, (TF_ShapeInferenceContext*, TF_ShapeHandle*))                            \
  X(void, TF_ShapeInferenceContextSubshape,                                                                         \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, int64_t start, int64_t end, TF_ShapeHandle*, TF_Status*))          \
  X(void, TF_ShapeInferenceContextConcatenateShapes,                                                                \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, TF_ShapeHandle*, TF_ShapeHandle*, TF_Status*))                     \
  X(TF_KernelBuilder*, TF_NewKernelBuilder,                                                                         \
    (const char* op, const char* device, void* (*create)(TF_OpKernelConstruction*),                                 \
     void (*compute)(void*, TF_OpKernelContext*), void (*destroy)(void*)))                                          \
  X(TF_KernelBuilder*, TF_NewAsyncKernelBuilder,                                                                    \
    (const char* op, const char* device, void* (*create)(TF_OpKernelConstruction*),                                 \
     void (*compute)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*), void (*destroy)(void*)))           \
  X(void, TF_KernelBuilder_HostMemory, (TF_KernelBuilder*, const char* argument))                                   \
  X(void, TF_KernelBuilder_TypeConstraint, (TF_KernelBuilder*, const char* attribute, int type, TF_Status*))        \
  X(void, TF_KernelBuilder_Priority, (TF_KernelBuilder*, int32_t priority))                                         \
  X(void, TF_RegisterKernelBuilder, (const char* kernel_name, TF_KernelBuilder*, TF_Status*))                       \
  X(TF_StringView, TF_OpKernelConstruction_GetName, (TF_OpKernelConstruction*))                                     \
  X(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction*, TF_Status*))                                  \
  X(void, TF_OpKernelConstruction_GetAttrInt32,                                                                     \
    (TF_OpKernelConstruction*, const char* name, int32_t* value, TF_Status*))                                       \
  X(void, TF_OpKernelConstruction_GetAttrBool,                                                                      \
    (TF_OpKernelConstruction*, const char* name, unsigned char* value, TF_Status*))                                 \
  X(void, TF_OpKernelConstruction_GetAttrSize,                                                                      \
    (TF_OpKernelConstruction*, const char* name, int32_t* list_size, int32_t* total_size, TF_Status*))              \
  X(void, TF_OpKernelConstruction_GetAttrString,                                                                    \
    (TF_OpKernelConstruction*, const char* name, char* value, size_t max_length, TF_Status*))                       \
  X(void, TF_OpKernelConstruction_GetAttrStringList,                                                                \
    (TF_OpKernelConstruction*, const char* name, char** values, size_t* lengths, int max_values, void* storage,     \
     size_t storage_size, TF_Status*))                                                                              \
  X(int64_t, TF_GetStepId, (TF_OpKernelContext*))                                                                   \
  X(uint64_t, TF_GetFrameId, (TF_OpKernelContext*))                                                                 \
  X(int64_t, TF_GetIterId, (TF_OpKernelContext*))                                                                   \
  X(int, TF_NumInputs, (TF_OpKernelContext*))                                                                       \
  X(void, TF_GetInput, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                                         \
  X(void, TF_SetOutput, (TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*))                                   \
  X(TF_Tensor*, TF_AllocateOutput,                                                                                  \
    (TF_OpKernelContext*, int index, int type, const int64_t* dims, int num_dims, size_t len, TF_Status*))          \
  X(TF_Tensor*, TF_ForwardInputOrAllocateOutput,                                                                    \
    (TF_OpKernelContext*, const int* candidates, int num_candidates, int output, const int64_t* dims, int num_dims, \
     int* forwarded, TF_Status*))                                                                                   \
  X(void, TF_OpKernelContext_Failure, (TF_OpKernelContext*, TF_Status*))

struct Api {
// A declarator cannot stand in parentheses.
#define HVD_TF_MEMBER(result, name, parameters) \
  result(*name) parameters = nullptr;  // NOLINT(bugprone-macro-parentheses)
  HVD_TF_FUNCTIONS(HVD_TF_MEMBER)
#undef HVD_TF_MEMBER
};

// The functions of the loaded TensorFlow. Empty afterwards: all are bound; otherwise why not.
std::string Bind();
// Valid after a successful Bind.
extern Api tf;
extern TF_Status* no_memory;  // "out of memory.": made then, because later there may be no memory to make it with

struct Deleter {
  void operator()(TF_Status* s) const {
    if (s != no_memory) tf.TF_DeleteStatus(s);
  }
  void operator()(TF_Tensor* t) const { tf.TF_DeleteTensor(t); }
  void operator()(TF_ShapeHandle* h) const { tf.TF_DeleteShapeHandle(h); }
};
using StatusPtr = std::unique_ptr<TF_Status, Deleter>;
using TensorPtr = std::unique_ptr<TF_Tensor, Deleter>;
using ShapePtr = std::unique_ptr<TF_ShapeHandle, Deleter>;

inline StatusPtr NewStatus() { return StatusPtr(tf.TF_NewStatus()); }
inline bool Ok(const StatusPtr& s) { return tf.TF_GetCode(s.get()) == kOk; }

}  // namespace hvd::frameworks::tensorflow
