// CUDA C as a C++ compiler for CPUs takes it: what the generated kernels use of the language.
//
// A thread of a block is a fiber (runtime/block.cc). Accesses of memory are seen by the hooks that
// the compiler inserts (runtime/accesses.cc); what is missing here is an error when it is compiled.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "runtime/interface.h"
#include "sixteen_bits.h"
#include "vectors.h"

#define __global__ static __attribute__((noinline))
#define __device__
#define __host__
#define __restrict__ __restrict
#define __launch_bounds__(threads)
#define __align__(bytes) alignas(bytes)
#define CUDART_INF_F std::numeric_limits<float>::infinity()
#define CUDART_INF std::numeric_limits<double>::infinity()
#define CUDART_NAN_F std::numeric_limits<float>::quiet_NaN()
#define CUDART_NAN std::numeric_limits<double>::quiet_NaN()

// an array of shared memory: the declaration is rewritten to this (kernels.py)
#define SHARED_ARRAY(type, name, extent, number) \
  type(&name)[extent] = *static_cast<type(*)[extent]>( \
      cuda_on_cpu::shared_array(number, #name, sizeof(type), sizeof(type) * (extent)))

#define __syncthreads() cuda_on_cpu::barrier(__LINE__)
#define __activemask() cuda_on_cpu::active_mask(__LINE__)
#define __shfl_sync(mask, value, lane, width) \
  cuda_on_cpu::shuffle(mask, value, cuda_on_cpu::lane_at(lane, width), __LINE__)
#define __shfl_down_sync(mask, value, delta, width) \
  cuda_on_cpu::shuffle(mask, value, cuda_on_cpu::lane_below(delta, width), __LINE__)
#define __shfl_xor_sync(mask, value, bits, width) \
  cuda_on_cpu::shuffle(mask, value, cuda_on_cpu::lane_across(bits, width), __LINE__)

namespace cuda_on_cpu {

// the lane that a shuffle reads: its own where another segment of the warp begins
inline int lane_at(int lane, int width) {
  const int self = lane_of_thread();
  return self / width * width + (lane & (width - 1));
}
inline int lane_below(int delta, int width) {
  const int self = lane_of_thread();
  return self % width + delta < width ? self + delta : self;
}
inline int lane_across(int bits, int width) {
  const int self = lane_of_thread(), other = self ^ bits;
  return other / width <= self / width ? other : self;
}

template <class T>
UNSEEN T shuffle(unsigned mask, T value, int lane, int line) {
  static_assert(sizeof(T) <= 8, "a shuffle exchanges 8 bytes at most");
  T result;
  exchange(mask, lane, &value, &result, sizeof(T), line);
  return result;
}

}  // namespace cuda_on_cpu

template <class T>
UNSEEN T atomicAdd(T* place, T value) {
  cuda_on_cpu::atomic_access(place, sizeof(T), __builtin_return_address(0));
  const T before = *place;
  *place = static_cast<T>(before + value);
  return before;
}

template <class T>
UNSEEN T atomicMax(T* place, T value) {
  cuda_on_cpu::atomic_access(place, sizeof(T), __builtin_return_address(0));
  const T before = *place;
  *place = before < value ? value : before;
  return before;
}

// functions that CUDA has without a header
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
// the smaller and the larger of two floats: the number where the other is NaN
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __int_as_float(int bits) { return cuda_on_cpu::same_bits<float>(bits); }
inline int __float_as_int(float value) { return cuda_on_cpu::same_bits<int>(value); }
