"""The kernels of the probes, as PTX text of our own: packing many tensors with a scale; a clock that holds a stream.

Used by the probes; `driver.load` compiles it on the device. A packing kernel takes a table of entries (source,
destination, bytes, first block), 24 bytes each; a block finds its entry by bisection, moves CHUNK_BYTES of it with
16-byte accesses where both addresses allow, else element by element.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

THREADS = 256
ENTRY_BYTES = 24
# 16-byte pieces that each thread has in flight, and what one block moves.
UNROLL = 4
CHUNK_BYTES = THREADS * 16 * UNROLL
HEADER = ".version 8.1\n.target sm_80\n.address_size 64\n"
WIDTHS = {"f32": 4, "f16": 2, "bf16": 2}

# One 32-bit word in register {r}: one float or two halves, multiplied by %f0 in float32 and rounded to nearest.
_SCALES = {
    "f32": "mov.b32 %f1, {r}; mul.rn.f32 %f1, %f1, %f0; mov.b32 {r}, %f1;",
    "f16": "mov.b32 {{%h0, %h1}}, {r}; cvt.f32.f16 %f1, %h0; cvt.f32.f16 %f2, %h1; mul.rn.f32 %f1, %f1, %f0; "
    "mul.rn.f32 %f2, %f2, %f0; cvt.rn.f16.f32 %h0, %f1; cvt.rn.f16.f32 %h1, %f2; mov.b32 {r}, {{%h0, %h1}};",
    "bf16": "shl.b32 %r30, {r}, 16; and.b32 %r31, {r}, 0xffff0000; mov.b32 %f1, %r30; mov.b32 %f2, %r31; "
    "mul.rn.f32 %f1, %f1, %f0; mul.rn.f32 %f2, %f2, %f0; cvt.rn.bf16x2.f32 {r}, %f2, %f1;",
}

# Invariant of the bisection: the block's entry is in [%r2, %r1). Afterwards: %d2 source, %d3 destination and %r9 bytes
# of this block's chunk.
_FIND_ENTRY = f"""    mov.u32 %r0, %ctaid.x;
    ld.param.u32 %r1, [entries];
    mov.u32 %r2, 0;
BISECT:
    sub.u32 %r3, %r1, %r2;
    setp.le.u32 %p0, %r3, 1;
    @%p0 bra FOUND;
    add.u32 %r3, %r1, %r2;
    shr.u32 %r3, %r3, 1;
    mul.wide.u32 %d1, %r3, {ENTRY_BYTES};
    add.u64 %d1, %d0, %d1;
    ld.global.nc.u32 %r4, [%d1+20];
    setp.le.u32 %p1, %r4, %r0;
    selp.u32 %r2, %r3, %r2, %p1;
    selp.u32 %r1, %r1, %r3, %p1;
    bra BISECT;
FOUND:
    mul.wide.u32 %d1, %r2, {ENTRY_BYTES};
    add.u64 %d1, %d0, %d1;
    ld.global.nc.u64 %d2, [%d1];
    ld.global.nc.u64 %d3, [%d1+8];
    ld.global.nc.u32 %r5, [%d1+16];
    ld.global.nc.u32 %r6, [%d1+20];
    sub.u32 %r7, %r0, %r6;
    mul.lo.u32 %r8, %r7, {CHUNK_BYTES};
    sub.u32 %r9, %r5, %r8;
    min.u32 %r9, %r9, {CHUNK_BYTES};
    cvt.u64.u32 %d4, %r8;
    add.u64 %d2, %d2, %d4;
    add.u64 %d3, %d3, %d4;"""


def packing(dtype: str) -> str:
    """The kernel `pack` for f32, f16 or bf16: (table, entries, scale)."""
    return f"""{HEADER}
.visible .entry pack(.param .u64 table, .param .u32 entries, .param .f32 scale)
.maxntid {THREADS}, 1, 1
{{
    .reg .pred %p<8>; .reg .pred %q<{UNROLL}>; .reg .b16 %h<4>; .reg .b32 %r<32>; .reg .f32 %f<4>;
    .reg .b64 %d<16>; .reg .b32 %w<{4 * UNROLL}>;
    ld.param.u64 %d0, [table];
    ld.param.f32 %f0, [scale];
{_FIND_ENTRY}
    mov.u32 %r10, %tid.x;
    or.b64 %d5, %d2, %d3;
    and.b64 %d5, %d5, 15;
    setp.ne.u64 %p2, %d5, 0;
    mul.lo.u32 %r15, %r10, {WIDTHS[dtype]};
    @%p2 bra ELEMENTS;
{_move_vectors(dtype)}
ELEMENTS:
    setp.ge.u32 %p4, %r15, %r9;
    @%p4 bra END;
{_move_element(dtype)}
    add.u32 %r15, %r15, {THREADS * WIDTHS[dtype]};
    bra ELEMENTS;
END:
    ret;
}}
"""


def _move_vectors(dtype: str) -> str:
    # All loads first, so that they are in flight together. What is left over, less than 16 bytes at the end of the
    # tensor, goes to ELEMENTS: %r15 is moved behind the vectors.
    words = [[f"%w{4 * k + i}" for i in range(4)] for k in range(UNROLL)]
    lines = ["shr.u32 %r11, %r9, 4;", "mul.wide.u32 %d6, %r10, 16;", "add.u64 %d7, %d2, %d6;", "add.u64 %d8, %d3, %d6;"]
    for k, four in enumerate(words):
        at = k * THREADS
        lines += [f"add.u32 %r12, %r10, {at};", f"setp.lt.u32 %q{k}, %r12, %r11;"]
        lines.append(f"@%q{k} ld.global.nc.L1::no_allocate.v4.u32 {{{', '.join(four)}}}, [%d7+{at * 16}];")
    for k, four in enumerate(words):
        lines += [_SCALES[dtype].format(r=word) for word in four]
        lines.append(f"@%q{k} st.global.v4.u32 [%d8+{k * THREADS * 16}], {{{', '.join(four)}}};")
    lines += ["and.b32 %r13, %r9, 0xfffffff0;", "add.u32 %r15, %r15, %r13;"]
    return "\n".join(f"    {line}" for line in lines)


def _move_element(dtype: str) -> str:
    scale = _SCALES[dtype].format(r="%r16")
    lines = ["cvt.u64.u32 %d9, %r15;", "add.u64 %d10, %d2, %d9;", "add.u64 %d11, %d3, %d9;"]
    if WIDTHS[dtype] == 4:
        lines += ["ld.global.u32 %r16, [%d10];", scale, "st.global.u32 [%d11], %r16;"]
    else:
        lines += ["ld.global.u16 %h3, [%d10];", "cvt.u32.u16 %r16, %h3;", scale]
        lines += ["cvt.u16.u32 %h3, %r16;", "st.global.u16 [%d11], %h3;"]
    return "\n".join(f"    {line}" for line in lines)


def entries(moves: Sequence[tuple[int, int, int]]) -> tuple[bytes, int]:
    """The table of (source, destination, bytes), none of them empty, and how many blocks it takes."""
    made, block = [], 0
    for source, destination, size_bytes in moves:
        made.append(struct.pack("<QQII", source, destination, size_bytes, block))
        block += -(-size_bytes // CHUNK_BYTES)
    return b"".join(made), block


# `stamp` holds the stream for some nanoseconds and then writes when it began and when it ended into the mailbox.
CLOCKS = (
    HEADER
    + """
.visible .entry stamp(.param .u64 mailbox, .param .u64 nanoseconds)
{
    .reg .pred %p<2>; .reg .b64 %d<8>;
    mov.u64 %d0, %globaltimer;
    ld.param.u64 %d1, [mailbox];
    ld.param.u64 %d2, [nanoseconds];
HOLD:
    mov.u64 %d3, %globaltimer;
    sub.u64 %d4, %d3, %d0;
    setp.lt.u64 %p0, %d4, %d2;
    @%p0 bra HOLD;
    st.volatile.global.u64 [%d1], %d0;
    st.volatile.global.u64 [%d1+8], %d3;
    ret;
}
"""
)
