// One block of threads: fibers that run until they wait for each other, and what they wait for.
//
// A thread runs until it meets a barrier, a shuffle or a vote, or returns. Once no thread can run,
// those that wait for each other go on together; where they do not match, that is a finding.
#include <sys/mman.h>

#include <cstring>
#include <string>

#include "address_sanitizer.h"
#include "fiber.h"
#include "runtime.h"

struct MutablePlace {
  unsigned x, y, z;
};
MutablePlace cuda_on_cpu_thread, cuda_on_cpu_block, cuda_on_cpu_threads, cuda_on_cpu_blocks;

namespace cuda_on_cpu {
namespace {

constexpr int kThreads = 1024, kWarp = 32;
// an odd number of pages from one stack to the next, which also begin at different places of a page:
// else the few bytes that each thread uses would fall on the same few lines of the caches
constexpr size_t kPage = 4096, kStack = 1 << 20, kGuard = 17 * kPage, kLine = 64;

enum State { READY, AT_BARRIER, AT_SHUFFLE, AT_VOTE, RETURNED };

struct Thread {
  Fiber fiber;
  MutablePlace place;
  State state;
  int stack;  // its number, or -1 as long as the thread has not begun
  int line;
  unsigned mask;
  int lane;  // that a shuffle reads
  char mine[8], *result;
  size_t size;
  void* sanitized;  // of AddressSanitizer
};

Thread threads[kThreads];
char* stacks = nullptr;
int free_stacks[kThreads], free_count = 0;
Fiber scheduler;
void* sanitized;
const void* scheduler_stack;
size_t scheduler_size;
int count = 0, current = -1;
bool abandoned = false;
void (*body)(const Value*);
const Value* values;

char* stack_at(int number) { return stacks + number * (kStack + kGuard) + kGuard; }

[[noreturn]] void leave() {
  leaves_for(nullptr, scheduler_stack, scheduler_size);
  switch_fiber(&threads[current].fiber, &scheduler);
  __builtin_unreachable();
}

void become(int thread) {
  current = thread;
  cuda_on_cpu_thread = threads[thread].place;
}

// a thread, and those behind it, until one waits
void thread_main() {
  arrived(nullptr, &scheduler_stack, &scheduler_size);
  const int stack = threads[current].stack;
  while (true) {
    body(values);
    threads[current].state = RETURNED;
    const int next = current + 1;
    if (next == count || threads[next].stack >= 0) break;
    threads[next].stack = stack;
    become(next);
  }
  free_stacks[free_count++] = stack;
  leave();
}

void wait(State state, int line) {
  Thread& self = threads[current];
  self.state = state;
  self.line = line;
  leaves_for(&self.sanitized, scheduler_stack, scheduler_size);
  switch_fiber(&self.fiber, &scheduler);
  arrived(self.sanitized, &scheduler_stack, &scheduler_size);
}

void begin(Thread* thread) {
  thread->stack = free_stacks[--free_count];
  const size_t apart = thread->stack * 5 * kLine % kPage;
  start_fiber(&thread->fiber, stack_at(thread->stack), kStack - apart, thread_main);
}

void resume(int thread) {
  Thread& one = threads[thread];
  if (one.stack < 0) begin(&one);
  become(thread);
  leaves_for(&sanitized, stack_at(one.stack), kStack);
  switch_fiber(&scheduler, &one.fiber);
  arrived(sanitized, nullptr, nullptr);
  current = -1;
}

std::string name_of(int thread) { return "thread " + std::to_string(thread); }

// shuffles of a warp whose lanes are all there
bool shuffled(int first, int end) {
  bool any = false;
  for (int thread = first; thread < end; ++thread) {
    if (threads[thread].state != AT_SHUFFLE) continue;
    const unsigned mask = threads[thread].mask;
    bool complete = true;
    for (int lane = 0; lane < kWarp && complete; ++lane) {
      if (!(mask >> lane & 1)) continue;
      const Thread* other = first + lane < end ? &threads[first + lane] : nullptr;
      complete = other && other->state == AT_SHUFFLE && other->mask == mask &&
                 other->line == threads[thread].line;
    }
    if (!complete) continue;
    for (int lane = 0; lane < kWarp; ++lane) {
      if (!(mask >> lane & 1)) continue;
      Thread& reader = threads[first + lane];
      if (mask >> (reader.lane & 31) & 1) {
        std::memcpy(reader.result, threads[first + reader.lane].mine, reader.size);
      } else {
        std::memset(reader.result, 0xff, reader.size);  // undefined on a GPU: NaN
      }
    }
    for (int lane = 0; lane < kWarp; ++lane) {
      if (mask >> lane & 1) threads[first + lane].state = READY;
    }
    any = true;
  }
  return any;
}

// a vote of the lanes of a warp that are at one place, when the others of the warp wait elsewhere
bool voted(int first, int end) {
  for (int thread = first; thread < end; ++thread) {
    if (threads[thread].state != AT_VOTE) continue;
    unsigned mask = 0;
    for (int other = thread; other < end; ++other) {
      if (threads[other].state == AT_VOTE && threads[other].line == threads[thread].line) {
        mask |= 1u << (other - first);
        threads[other].state = READY;
      }
    }
    for (int other = first; other < end; ++other) {
      if (mask >> (other - first) & 1) threads[other].mask = mask;
    }
    return true;
  }
  return false;
}

// all threads that wait at barriers go on; false where some wait for something else
bool met() {
  int first = -1, other = -1, gone = -1;
  for (int thread = 0; thread < count; ++thread) {
    const Thread& one = threads[thread];
    if (one.state == RETURNED) {
      gone = thread;
    } else if (one.state != AT_BARRIER) {
      return false;
    } else if (first < 0) {
      first = thread;
    } else if (one.line != threads[first].line) {
      other = thread;
    }
  }
  const std::string where = " waits at the barrier of line " + std::to_string(threads[first].line);
  if (gone >= 0) {
    found("a barrier is skipped: " + name_of(first) + where + ", " + name_of(gone) +
          " has returned");
  } else if (other >= 0) {
    found("a barrier in a branch: " + name_of(first) + where + ", " + name_of(other) +
          " at that of line " + std::to_string(threads[other].line));
  }
  for (int thread = 0; thread < count; ++thread) {
    if (threads[thread].state == AT_BARRIER) threads[thread].state = READY;
  }
  begin_phase();
  return true;
}

bool released() {
  bool any = false;
  for (int first = 0; first < count; first += kWarp) {
    const int end = first + kWarp < count ? first + kWarp : count;
    any |= shuffled(first, end) || voted(first, end);
  }
  return any || met();
}

}  // namespace

bool in_kernel() { return current >= 0; }

int current_thread() { return current; }

bool on_stack(uintptr_t address) {
  const uintptr_t base = reinterpret_cast<uintptr_t>(stack_at(threads[current].stack));
  return address >= base && address < base + kStack;
}

void abandon_block() {
  abandoned = true;
  leave();
}

void run_block(void (*call)(const Value*), const Value* arguments, int size) {
  if (!stacks) {
    stacks = static_cast<char*>(mmap(nullptr, kThreads * (kStack + kGuard), PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (int thread = 0; thread < kThreads; ++thread) {
      mprotect(stack_at(thread) - kGuard, kGuard, PROT_NONE);
    }
  }
  // threads that did not return have left their marks, and have their stacks
  if (abandoned) allow(stacks, kThreads * (kStack + kGuard));
  if (abandoned || free_count == 0) {
    for (int stack = 0; stack < kThreads; ++stack) free_stacks[stack] = stack;
    free_count = kThreads;
  }
  body = call, values = arguments, count = size, abandoned = false;
  const MutablePlace& shape = cuda_on_cpu_threads;
  MutablePlace place = {0, 0, 0};
  for (int thread = 0; thread < count; ++thread) {
    threads[thread].place = place;
    if (++place.x == shape.x) place.x = 0, ++place.y;
    if (place.y == shape.y) place.y = 0, ++place.z;
    threads[thread].state = READY;
    threads[thread].stack = -1;
  }
  while (!abandoned) {
    int left = 0;
    for (int thread = 0; thread < count && !abandoned; ++thread) {
      if (threads[thread].state == READY) resume(thread);
      left += threads[thread].state != RETURNED;
    }
    if (abandoned || !left) return;
    if (!released()) {
      int waiting = 0;
      while (threads[waiting].state != AT_SHUFFLE) ++waiting;
      found("a shuffle of line " + std::to_string(threads[waiting].line) + ": " +
            name_of(waiting) + " waits for a lane of its mask that does not come");
      abandoned = true;
      return;
    }
  }
}

void barrier(int line) { wait(AT_BARRIER, line); }

unsigned active_mask(int line) {
  wait(AT_VOTE, line);
  return threads[current].mask;
}

int lane_of_thread() { return current % kWarp; }

void exchange(unsigned mask, int lane, const void* mine, void* result, size_t size, int line) {
  Thread& self = threads[current];
  if (!(mask >> lane_of_thread() & 1)) {
    found("a shuffle of line " + std::to_string(line) + ": its mask leaves out " +
          name_of(current) + ", which takes part");
    abandon_block();
  }
  self.mask = mask, self.lane = lane, self.size = size;
  self.result = static_cast<char*>(result);
  std::memcpy(self.mine, mine, size);
  wait(AT_SHUFFLE, line);
}

}  // namespace cuda_on_cpu
