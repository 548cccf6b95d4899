// As much of TensorFlow as one execution of an operator meets: a context with inputs and outputs, for tests of the
// calls. It takes no memory from operator new, so what fails in a test is the core's. Memory that is let go of stays,
// so that who writes there is found.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "frameworks/tensorflow/c_api.h"

struct TF_Status {
  int code;
  char text[300];
};

struct TF_Tensor {
  int type;
  int64_t dims[2];
  int num_dims;
  void* data;
  size_t bytes;
  void (*deallocator)(void* data, size_t bytes, void* arg);
  void* arg;
};

struct TF_OpKernelContext {
  std::array<TF_Tensor, 2> inputs{};
  std::array<TF_Tensor, 2> outputs{};
  int num_inputs = 0;
  int failures = 0;
  TF_Status failure{};
};

namespace hvd::test {

// Binds the functions that a call uses, in place of Bind; undone at the end.
class FakeTensorflow {
 public:
  FakeTensorflow() {
    using frameworks::tensorflow::no_memory;
    using frameworks::tensorflow::tf;
    tf.TF_NewStatus = [] { return static_cast<TF_Status*>(std::calloc(1, sizeof(TF_Status))); };
    tf.TF_DeleteStatus = [](TF_Status* status) { std::free(status); };
    tf.TF_SetStatus = [](TF_Status* status, int code, const char* text) {
      status->code = code;
      std::strncpy(status->text, text, sizeof status->text - 1);
    };
    tf.TF_GetCode = [](const TF_Status* status) { return status->code; };
    tf.TF_Message = [](const TF_Status* status) { return static_cast<const char*>(status->text); };
    tf.TF_NewTensor = [](int type, const int64_t* dims, int num_dims, void* data, size_t bytes,
                         void (*deallocator)(void*, size_t, void*), void* arg) {
      TF_Tensor tensor = {type, {}, num_dims, data, bytes, deallocator, arg};
      std::copy(dims, dims + num_dims, tensor.dims);
      return Handle(tensor);
    };
    tf.TF_DeleteTensor = [](TF_Tensor* tensor) {
      if (tensor->deallocator != nullptr) tensor->deallocator(tensor->data, tensor->bytes, tensor->arg);
      std::free(tensor);
    };
    tf.TF_TensorType = [](const TF_Tensor* tensor) { return tensor->type; };
    tf.TF_NumDims = [](const TF_Tensor* tensor) { return tensor->num_dims; };
    tf.TF_Dim = [](const TF_Tensor* tensor, int i) { return tensor->dims[i]; };
    tf.TF_TensorByteSize = [](const TF_Tensor* tensor) { return tensor->bytes; };
    tf.TF_TensorData = [](const TF_Tensor* tensor) { return tensor->data; };
    tf.TF_GetStepId = [](TF_OpKernelContext*) { return int64_t{1}; };
    tf.TF_GetFrameId = [](TF_OpKernelContext*) { return uint64_t{0}; };
    tf.TF_GetIterId = [](TF_OpKernelContext*) { return int64_t{0}; };
    tf.TF_NumInputs = [](TF_OpKernelContext* context) { return context->num_inputs; };
    tf.TF_GetInput = [](TF_OpKernelContext* context, int i, TF_Tensor** tensor, TF_Status*) {
      *tensor = Handle(context->inputs[i]);
    };
    tf.TF_SetOutput = [](TF_OpKernelContext* context, int i, const TF_Tensor* tensor, TF_Status*) {
      context->outputs[i] = *tensor;
      context->outputs[i].data = std::memcpy(std::malloc(tensor->bytes), tensor->data, tensor->bytes);
    };
    tf.TF_AllocateOutput = [](TF_OpKernelContext* context, int i, int type, const int64_t* dims, int num_dims,
                              size_t bytes, TF_Status*) {
      return Output(context, i, {type, {num_dims > 0 ? dims[0] : 0}, num_dims, nullptr, bytes, nullptr, nullptr});
    };
    tf.TF_ForwardInputOrAllocateOutput = [](TF_OpKernelContext* context, const int*, int, int i, const int64_t*, int,
                                            int* forwarded, TF_Status*) {
      *forwarded = -1;
      return Output(context, i, context->inputs[i]);
    };
    tf.TF_OpKernelContext_Failure = [](TF_OpKernelContext* context, TF_Status* status) {
      ++context->failures;
      context->failure = *status;
    };
    no_memory = tf.TF_NewStatus();
    tf.TF_SetStatus(no_memory, frameworks::tensorflow::kResourceExhausted, "Horovod: out of memory.");
  }
  ~FakeTensorflow() {
    std::free(frameworks::tensorflow::no_memory);
    frameworks::tensorflow::no_memory = nullptr;
    frameworks::tensorflow::tf = {};
  }
  FakeTensorflow(const FakeTensorflow&) = delete;
  FakeTensorflow& operator=(const FakeTensorflow&) = delete;

  static TF_Tensor* Handle(const TF_Tensor& tensor) {
    return static_cast<TF_Tensor*>(std::memcpy(std::malloc(sizeof tensor), &tensor, sizeof tensor));
  }

 private:
  static TF_Tensor* Output(TF_OpKernelContext* context, int i, TF_Tensor like) {
    like.data = std::calloc(1, like.bytes + 1);
    context->outputs[i] = like;
    return Handle(like);
  }
};

}  // namespace hvd::test
