// AddressSanitizer's functions, where its library is loaded in front of everything; else nothing.
#pragma once

#include <cstddef>

extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(const volatile void*, size_t);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void*, size_t);
__attribute__((weak)) void __asan_set_error_report_callback(void (*)(const char*));
__attribute__((weak)) void __sanitizer_start_switch_fiber(void**, const void*, size_t);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
}

namespace cuda_on_cpu {

// memory that nothing may access
inline void forbid(const void* begin, size_t bytes) {
  if (__asan_poison_memory_region) __asan_poison_memory_region(begin, bytes);
}

inline void allow(const void* begin, size_t bytes) {
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(begin, bytes);
}

// around a switch to another stack: to where, and, in the fiber that begins or goes on, from where
inline void leaves_for(void** saved, const void* stack, size_t size) {
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(saved, stack, size);
}

inline void arrived(void* saved, const void** stack, size_t* size) {
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(saved, stack, size);
}

}  // namespace cuda_on_cpu
