// CUDA's vector types: two to four numbers that one access reads or writes, aligned as a whole.
#pragma once

#include <cstdint>

#include "sixteen_bits.h"

#define uint unsigned int
#define uchar unsigned char
#define ushort unsigned short

#define VECTORS(type, name) \
  struct alignas(2 * sizeof(type)) name##2 { \
    type x, y; \
  }; \
  struct name##3 { \
    type x, y, z; \
  }; \
  struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4 { \
    type x, y, z, w; \
  }; \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; } \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

VECTORS(float, float)
VECTORS(double, double)
VECTORS(int, int)
VECTORS(unsigned, uint)
VECTORS(signed char, char)
VECTORS(unsigned char, uchar)
VECTORS(short, short)
VECTORS(unsigned short, ushort)
VECTORS(long long, longlong)
VECTORS(unsigned long long, ulonglong)
VECTORS(half, half)
VECTORS(nv_bfloat16, nv_bfloat16)
#undef VECTORS

struct uint1 {
  unsigned x;
};
inline uint1 make_uint1(unsigned x) { return {x}; }
