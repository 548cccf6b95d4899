// The part of the XLA FFI's binary interface that a handler needs: the frame it is called with, how it tells an error,
// and how it gets the stream of its computation. Declared here by hand, so that one library serves every jaxlib; later
// versions append to these structures, and every one of them begins with its size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::frameworks::jax {

struct Extension {
  size_t struct_bytes;
  int32_t type;
  Extension* next;
};
inline constexpr int32_t kMetadata = 1;  // type: XLA asks what the handler is

struct Version {
  size_t struct_bytes;
  Extension* extensions;
  int32_t major;
  int32_t minor;
};

struct Metadata {
  size_t struct_bytes;
  Version version;  // the handler's answer
  uint32_t traits;  // likewise
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct ErrorArguments {
  size_t struct_bytes;
  Extension* extensions;
  const char* message;
  int32_t code;
};
struct StreamArguments {
  size_t struct_bytes;
  Extension* extensions;
  void* context;  // of the call frame
  void* stream;   // the answer; on the platform CUDA a CUstream
};
struct Api {
  size_t struct_bytes;
  Extension* extensions;
  Version version;
  const void* internal;
  void* (*create_error)(ErrorArguments* arguments);
  void (*error_message)(void*);
  void (*destroy_error)(void*);
  void* (*register_handler)(void*);
  void* (*get_stream)(StreamArguments* arguments);  // null, or an error, which is the caller's
};

struct Buffer {
  size_t struct_bytes;
  Extension* extensions;
  int32_t dtype;
  void* data;
  int64_t rank;
  int64_t* extents;
};

// Operands or results.
struct Buffers {
  size_t struct_bytes;
  Extension* extensions;
  int64_t size;
  int32_t* types;
  Buffer** items;  // what is not of type kBuffer is something else
};
inline constexpr int32_t kBuffer = 1;

struct Text {
  const char* data;
  size_t bytes;
};
struct Attributes {
  size_t struct_bytes;
  Extension* extensions;
  int64_t size;
  int32_t* types;
  Text** names;
  Text** values;  // of type kText; others are something else
};
inline constexpr int32_t kText = 4;

struct CallFrame {
  size_t struct_bytes;
  Extension* extensions;
  const Api* api;
  void* context;
  int32_t stage;
  Buffers operands;
  Buffers results;
  Attributes attributes;
};
inline constexpr int32_t kExecute = 3;  // stage

}  // namespace hvd::frameworks::jax
