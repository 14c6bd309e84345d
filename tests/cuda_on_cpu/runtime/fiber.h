// Functions with stacks of their own, and switching between them.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cuda_on_cpu {

#if defined(__x86_64__)
// the place where it goes on is on its stack
struct Fiber {
  void* stack;
};

// `swapcontext` would make two system calls, and a processor predicts where a call returns to
inline __attribute__((always_inline)) void switch_fiber(Fiber* from, Fiber* to) {
  asm volatile(
      "leaq -128(%%rsp), %%rsp\n"  // what a function may use below its stack
      "pushq %%rbp\n"
      "leaq 1f(%%rip), %%rax\n"
      "pushq %%rax\n"
      "movq %%rsp, (%%rdi)\n"
      "movq (%%rsi), %%rsp\n"
      "popq %%rax\n"
      "jmp *%%rax\n"
      "1: popq %%rbp\n"
      "leaq 128(%%rsp), %%rsp\n"
      : "+D"(from), "+S"(to)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0",
        "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
        "xmm12", "xmm13", "xmm14", "xmm15", "cc", "memory");
}

inline void start_fiber(Fiber* fiber, char* stack, size_t size, void (*function)()) {
  void** top = reinterpret_cast<void**>(stack + size) - 1;  // as behind a call
  *top = nullptr;  // where `function` would return to
  *--top = reinterpret_cast<void*>(function);
  fiber->stack = top;
}
#else
struct Fiber {
  ucontext_t context;
};

inline void switch_fiber(Fiber* from, Fiber* to) { swapcontext(&from->context, &to->context); }

inline void start_fiber(Fiber* fiber, char* stack, size_t size, void (*function)()) {
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = stack;
  fiber->context.uc_stack.ss_size = size;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, function, 0);
}
#endif

}  // namespace cuda_on_cpu
