// What kernels and their launches use of the runtime: places of threads, barriers, exchanges.
#pragma once

#include <cstddef>
#include <cstdint>

// a function whose accesses the compiler does not report
#define UNSEEN __attribute__((no_sanitize_thread, noinline))

struct Place {
  unsigned x, y, z;
};

// constant as long as a thread runs, so that reading them is no access of memory
extern const Place threadIdx asm("cuda_on_cpu_thread");
extern const Place blockIdx asm("cuda_on_cpu_block");
extern const Place blockDim asm("cuda_on_cpu_threads");
extern const Place gridDim asm("cuda_on_cpu_blocks");

namespace cuda_on_cpu {

// a kernel's argument: an array, or a number
union Value {
  void* array;
  int64_t integer;
  double real;
};

// what a library of compiled kernels holds of each
struct Kernel {
  const char* name;
  void (*call)(const Value*);
  int count;                 // of its parameters
  const char* const* names;  // of them
  const int* sizes;          // bytes of an element of an array, 0 for a number
  const char* extents;       // those of a launch in their order: "X" and "x" are blockIdx.x, threadIdx.x
};

// an array that the host gave to the function that launches kernels
struct Range {
  uintptr_t begin, end;
};

void barrier(int line);
unsigned active_mask(int line);
int lane_of_thread();
void exchange(unsigned mask, int lane, const void* mine, void* result, size_t size, int line);
void* shared_array(int number, const char* name, size_t element, size_t bytes);
void atomic_access(const void* place, size_t bytes, const void* from);

}  // namespace cuda_on_cpu
