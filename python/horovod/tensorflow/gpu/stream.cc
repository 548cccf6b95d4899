// Answers the CUDA stream on which TensorFlow launches the kernels of an operator's device. Compiled against the
// headers of the installed TensorFlow by helper.py, because these objects change from version to version. Calls virtual
// functions of TensorFlow's only, and holds no state.
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/stream_executor.h"

namespace {

// TensorFlow 2.14 and later.
template <class Stream>
auto HandleOf(Stream* stream, int) -> decltype(stream->platform_specific_handle().stream) {
  return stream->platform_specific_handle().stream;
}
// 2.13
template <class Stream>
auto HandleOf(Stream* stream, long) -> decltype(stream->implementation()->GpuStreamHack()) {
  return stream->implementation()->GpuStreamHack();
}

#ifndef HVD_STREAM_HANDLE  // tests have a GPU of another kind
#define HVD_STREAM_HANDLE(stream) HandleOf(stream, 0)
#endif

}  // namespace

extern "C" __attribute__((visibility("default"))) void hvd_tensorflow_stream(void* context, void** handle) {
  const tensorflow::DeviceContext* device = static_cast<tensorflow::OpKernelContext*>(context)->op_device_context();
  auto* stream = device == nullptr ? nullptr : device->stream();
  *handle = stream == nullptr ? nullptr : HVD_STREAM_HANDLE(stream);
}
