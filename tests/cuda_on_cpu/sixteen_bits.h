// half and nv_bfloat16: 16 bits in memory, arithmetic in float rounded once, as the GPU has it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace cuda_on_cpu {

template <class To, class From>
inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "of one size");
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

struct HalfFormat {
  static float widened(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value = std::ldexp(static_cast<float>(fraction | (exponent ? 1024 : 0)),
                             (exponent ? exponent : 1) - 25);
    if (exponent == 31) value = fraction ? NAN : INFINITY;
    return bits >> 15 ? -value : value;
  }
  static uint16_t narrowed(float value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const float size = std::fabs(value);
    if (std::isnan(value)) return sign | 0x7e00;
    if (size >= 65520.0f) return sign | 0x7c00;
    int exponent = size < 0x1p-14f ? -14 : std::ilogb(size);
    // to the nearest, ties to even: the default mode of rounding
    int fraction = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
    if (fraction == 2048) fraction = 1024, ++exponent;
    return sign | (fraction < 1024 ? fraction : (exponent + 15) << 10 | (fraction & 1023));
  }
};

struct BrainFormat {
  static float widened(uint16_t bits) { return same_bits<float>(uint32_t(bits) << 16); }
  static uint16_t narrowed(float value) {
    const uint32_t bits = same_bits<uint32_t>(value);
    if (std::isnan(value)) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
};

template <class Format>
struct Sixteen {
  uint16_t bits;

  Sixteen() = default;
  template <class Number>
  explicit Sixteen(Number value) : bits(Format::narrowed(static_cast<float>(value))) {}
  operator float() const { return Format::widened(bits); }
};

}  // namespace cuda_on_cpu

using half = cuda_on_cpu::Sixteen<cuda_on_cpu::HalfFormat>;
using nv_bfloat16 = cuda_on_cpu::Sixteen<cuda_on_cpu::BrainFormat>;
using __half = half;
using __nv_bfloat16 = nv_bfloat16;

#define OPERATOR(op) \
  template <class F> \
  inline cuda_on_cpu::Sixteen<F> operator op(cuda_on_cpu::Sixteen<F> a, cuda_on_cpu::Sixteen<F> b) { \
    return cuda_on_cpu::Sixteen<F>(static_cast<float>(a) op static_cast<float>(b)); \
  }
OPERATOR(+)
OPERATOR(-)
OPERATOR(*)
OPERATOR(/)
#undef OPERATOR
template <class F>
inline cuda_on_cpu::Sixteen<F> operator-(cuda_on_cpu::Sixteen<F> a) {
  return cuda_on_cpu::Sixteen<F>(-static_cast<float>(a));
}

#define FUNCTION(name, of) \
  template <class F> \
  inline cuda_on_cpu::Sixteen<F> name(cuda_on_cpu::Sixteen<F> x) { \
    return cuda_on_cpu::Sixteen<F>(of(static_cast<float>(x))); \
  }
FUNCTION(hexp, expf)
FUNCTION(hlog, logf)
FUNCTION(hsqrt, sqrtf)
FUNCTION(htanh, tanhf)
FUNCTION(hsin, sinf)
FUNCTION(hcos, cosf)
FUNCTION(hfloor, floorf)
FUNCTION(hceil, ceilf)
FUNCTION(__habs, fabsf)
// those that TVM defines itself where CUDA has none
FUNCTION(htan, tanf)
FUNCTION(hatan, atanf)
FUNCTION(herf, erff)
#undef FUNCTION
template <class F>
inline cuda_on_cpu::Sixteen<F> hpow(cuda_on_cpu::Sixteen<F> x, cuda_on_cpu::Sixteen<F> y) {
  return cuda_on_cpu::Sixteen<F>(powf(static_cast<float>(x), static_cast<float>(y)));
}

inline half __float2half_rn(float x) { return half(x); }
inline nv_bfloat16 __float2bfloat16_rn(float x) { return nv_bfloat16(x); }
inline float __half2float(half x) { return x; }
inline float __bfloat162float(nv_bfloat16 x) { return x; }
inline unsigned __pack_half2(half x, half y) { return unsigned(y.bits) << 16 | x.bits; }
inline unsigned __pack_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) {
  return unsigned(y.bits) << 16 | x.bits;
}
