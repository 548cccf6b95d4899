#include <utility>
#include <vector>

#include "backend/cuda/packing/packing_kernels.h"

namespace hvd::backend::cuda {
namespace {

using Replacements = std::vector<std::pair<std::string, std::string>>;

std::string Replaced(std::string text, const Replacements& replacements) {
  for (const auto& [name, value] : replacements) {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + value.size()))
      text.replace(at, name.size(), value);
  }
  return text;
}

std::string Number(unsigned value) { return std::to_string(value); }

// Multiplies WORD, 32 bits, by %f0: one float, or two of 16 bits.
constexpr const char* kScaleF32 = "    mov.b32 %f1, @WORD@; mul.rn.f32 %f1, %f1, %f0; mov.b32 @WORD@, %f1;\n";

constexpr const char* kScaleF16 = R"(    mov.b32 {%h0, %h1}, @WORD@;
    cvt.f32.f16 %f1, %h0; mul.rn.f32 %f1, %f1, %f0; cvt.rn.f16.f32 %h0, %f1;
    cvt.f32.f16 %f2, %h1; mul.rn.f32 %f2, %f2, %f0; cvt.rn.f16.f32 %h1, %f2;
    mov.b32 @WORD@, {%h0, %h1};
)";

// Rounds by hand, because the instruction for it came with compute capability 8.0: add a half of the last place, or a
// little less where that makes the result even, and drop the rest. A NaN could become infinity that way.
constexpr const char* kScaleBf16 =
    R"(    shl.b32 %r20, @WORD@, 16; mov.b32 %f1, %r20; mul.rn.f32 %f1, %f1, %f0; mov.b32 %r20, %f1;
    and.b32 %r21, @WORD@, 0xffff0000; mov.b32 %f2, %r21; mul.rn.f32 %f2, %f2, %f0; mov.b32 %r21, %f2;
    shr.u32 %r22, %r20, 16; and.b32 %r22, %r22, 1; add.u32 %r22, %r22, 0x7fff; add.u32 %r22, %r22, %r20;
    shr.u32 %r23, %r21, 16; and.b32 %r23, %r23, 1; add.u32 %r23, %r23, 0x7fff; add.u32 %r23, %r23, %r21;
    setp.nan.f32 %p5, %f1, %f1; selp.b32 %r20, 0x7fff0000, %r22, %p5;
    setp.nan.f32 %p6, %f2, %f2; selp.b32 %r21, 0x7fff0000, %r23, %p6;
    shr.u32 %r20, %r20, 16; and.b32 %r21, %r21, 0xffff0000; or.b32 @WORD@, %r20, %r21;
)";

// One element of the widths 4, 2 and 1, from [%d10] to [%d11].
constexpr const char* kElement4 = "    ld.global.u32 %r16, [%d10];\n@SCALE@    st.global.u32 [%d11], %r16;\n";
constexpr const char* kElement2 = R"(    ld.global.u16 %h3, [%d10];
    cvt.u32.u16 %r16, %h3;
@SCALE@    cvt.u16.u32 %h3, %r16;
    st.global.u16 [%d11], %h3;
)";
constexpr const char* kElement1 = "    ld.global.u8 %r16, [%d10];\n    st.global.u8 [%d11], %r16;\n";

// A block finds its entry by bisection: it is in [%r2, %r1). Afterwards %d2 is the source, %d3 the destination and %r9
// the number of bytes of this block's chunk. If both addresses are multiples of 16, so much of it as that is moved by
// VECTORS; the rest, or everything, element by element, from %r15 on. Bytes that lie at multiples of 4 go by words.
constexpr const char* kKernel = R"(
.visible .entry @NAME@(.param .align 8 .b8 table[@TABLE@], .param .u32 entries, .param .f32 scale)
.maxntid @THREADS@, 1, 1
{
    .reg .pred %p<8>; .reg .pred %q<@PIECES@>; .reg .b16 %h<4>; .reg .b32 %r<32>; .reg .f32 %f<4>;
    .reg .b64 %d<16>; .reg .b32 %w<@WORDS@>;
    mov.u64 %d0, table;
    ld.param.f32 %f0, [scale];
    mov.u32 %r0, %ctaid.x;
    ld.param.u32 %r1, [entries];
    mov.u32 %r2, 0;
BISECT:
    sub.u32 %r3, %r1, %r2;
    setp.le.u32 %p0, %r3, 1;
    @%p0 bra FOUND;
    add.u32 %r3, %r1, %r2;
    shr.u32 %r3, %r3, 1;
    mul.wide.u32 %d1, %r3, @ENTRY@;
    add.u64 %d1, %d0, %d1;
    ld.param.u32 %r4, [%d1+20];
    setp.le.u32 %p1, %r4, %r0;
    selp.u32 %r2, %r3, %r2, %p1;
    selp.u32 %r1, %r1, %r3, %p1;
    bra BISECT;
FOUND:
    mul.wide.u32 %d1, %r2, @ENTRY@;
    add.u64 %d1, %d0, %d1;
    ld.param.u64 %d2, [%d1];
    ld.param.u64 %d3, [%d1+8];
    ld.param.u32 %r5, [%d1+16];
    ld.param.u32 %r6, [%d1+20];
    sub.u32 %r7, %r0, %r6;
    mul.lo.u32 %r8, %r7, @CHUNK@;
    sub.u32 %r9, %r5, %r8;
    min.u32 %r9, %r9, @CHUNK@;
    cvt.u64.u32 %d4, %r8;
    add.u64 %d2, %d2, %d4;
    add.u64 %d3, %d3, %d4;
    mov.u32 %r10, %tid.x;
    or.b64 %d5, %d2, %d3;
    and.b64 %d6, %d5, 15;
    setp.ne.u64 %p2, %d6, 0;
    mul.lo.u32 %r15, %r10, @WIDTH@;
    @%p2 bra ROUGH;
@VECTORS@    and.b32 %r13, %r9, 0xfffffff0;
    add.u32 %r15, %r15, %r13;
    bra ELEMENTS;
ROUGH:
@ROUGH@ELEMENTS:
    setp.ge.u32 %p4, %r15, %r9;
    @%p4 bra END;
    cvt.u64.u32 %d9, %r15;
    add.u64 %d10, %d2, %d9;
    add.u64 %d11, %d3, %d9;
@ELEMENT@    add.u32 %r15, %r15, @STEP@;
    bra ELEMENTS;
END:
    ret;
}
)";

constexpr const char* kRoughWords = R"(    and.b64 %d6, %d5, 3;
    setp.ne.u64 %p3, %d6, 0;
    @%p3 bra ELEMENTS;
    and.b32 %r13, %r9, 0xfffffffc;
    add.u32 %r15, %r15, %r13;
    shl.b32 %r14, %r10, 2;
NEXT_WORD:
    setp.ge.u32 %p7, %r14, %r13;
    @%p7 bra ELEMENTS;
    cvt.u64.u32 %d9, %r14;
    add.u64 %d10, %d2, %d9;
    add.u64 %d11, %d3, %d9;
    ld.global.u32 %r16, [%d10];
    st.global.u32 [%d11], %r16;
    add.u32 %r14, %r14, @ROUGH_STEP@;
    bra NEXT_WORD;
)";

// All loads first, so that they are under way together. Not by way of the read-only cache (ld.global.nc): a tensor may
// be scaled in place.
std::string Vectors(const std::string& scale) {
  std::string text = R"(    shr.u32 %r11, %r9, 4;
    mul.wide.u32 %d6, %r10, 16;
    add.u64 %d7, %d2, %d6;
    add.u64 %d8, %d3, %d6;
)";
  std::string stores;
  for (unsigned piece = 0; piece < kPackPieces; ++piece) {
    std::string words;
    for (unsigned k = 0; k < 4; ++k) {
      const std::string word = "%w" + Number(4 * piece + k);
      words += (k == 0 ? "" : ", ") + word;
      stores += Replaced(scale, {{"@WORD@", word}});
    }
    const Replacements of_piece = {{"@FIRST@", Number(piece * kPackThreads)},
                                   {"@AT@", Number(piece * kPackThreads * 16)},
                                   {"@HAS@", "%q" + Number(piece)},
                                   {"@FOUR@", "{" + words + "}"}};
    text += Replaced(
        "    add.u32 %r12, %r10, @FIRST@; setp.lt.u32 @HAS@, %r12, %r11;\n    @@HAS@ ld.global.v4.u32 @FOUR@, "
        "[%d7+@AT@];\n",
        of_piece);
    stores += Replaced("    @@HAS@ st.global.v4.u32 [%d8+@AT@], @FOUR@;\n", of_piece);
  }
  return text + stores;
}

struct Kind {
  const char* name;
  unsigned width;
  const char* element;
  const char* scale;  // "": copies
};

std::string Kernel(const Kind& kind) {
  const std::string scale = kind.scale;
  return Replaced(kKernel, {{"@NAME@", kind.name},
                            {"@VECTORS@", Vectors(scale)},
                            {"@ROUGH@", kind.width == 1 ? kRoughWords : ""},
                            {"@ELEMENT@", kind.element},
                            {"@SCALE@", Replaced(scale, {{"@WORD@", "%r16"}})},
                            {"@TABLE@", Number(kPackEntries * sizeof(PackEntry))},
                            {"@ENTRY@", Number(sizeof(PackEntry))},
                            {"@CHUNK@", Number(kPackChunk)},
                            {"@WORDS@", Number(4 * kPackPieces)},
                            {"@ROUGH_STEP@", Number(4 * kPackThreads)},
                            {"@STEP@", Number(kind.width * kPackThreads)},
                            {"@THREADS@", Number(kPackThreads)},
                            {"@PIECES@", Number(kPackPieces)},
                            {"@WIDTH@", Number(kind.width)}});
}

}  // namespace

std::string PackingPtx() {
  return ".version 6.0\n.target sm_60\n.address_size 64\n" + Kernel({"pack_bytes", 1, kElement1, ""}) +
         Kernel({"pack_f32", 4, kElement4, kScaleF32}) + Kernel({"pack_f16", 2, kElement2, kScaleF16}) +
         Kernel({"pack_bf16", 2, kElement2, kScaleBf16});
}

}  // namespace hvd::backend::cuda
