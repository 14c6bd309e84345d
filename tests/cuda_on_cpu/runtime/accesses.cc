// Every access of a kernel's threads: inside of an array, and in no race with another thread.
//
// The compiler calls `__tsan_read4` and the like in front of accesses, as for ThreadSanitizer, whose
// library is not linked: these are the functions below. Each element of an array has a cell with its
// last write and its last read in this launch. A phase is the time between two barriers of a block:
// two accesses of different threads, one of them a write, race in one phase of a block, and, but for
// shared memory, in different blocks.
#include <cstdlib>
#include <cstring>
#include <string>

#include "address_sanitizer.h"
#include "runtime.h"

namespace cuda_on_cpu {
namespace {

struct Cell {
  uint64_t write, read;  // phase << 16 | flags | thread
};
constexpr uint64_t kThread = 0x7ff, kMany = 0x800, kOtherBlocks = 0x1000, kAtomic = 0x2000;

struct Array {
  uintptr_t begin, end;
  int shift;  // log2 of the bytes of an element
  Cell* cells;
  std::string name;
  bool shared, told;
  int element;
};

constexpr int kSharedBytes = 48 << 10, kGap = 256;
constexpr int kArrays = 96;
Array arrays[kArrays];
int used = 0, of_memory = 0, last = 0;
int number_of_shared[kArrays];
size_t shared_bytes = 0;
alignas(256) char shared_memory[2 * kSharedBytes];
size_t shared_end = 0;
uint64_t phase = 0, first_phase = 0;

int log2_of(int bytes) {
  int shift = 0;
  while (1 << (shift + 1) <= bytes) ++shift;
  return shift;
}

void add(const std::string& name, uintptr_t begin, uintptr_t end, int element, bool shared) {
  Array& array = arrays[used++];
  array.begin = begin, array.end = end, array.name = name, array.shared = shared;
  array.element = element, array.told = false;
  array.cells = nullptr;
}

void make_cells(Array& array) {
  array.shift = log2_of(array.element);
  const size_t count = ((array.end - array.begin) >> array.shift) + 1;
  array.cells = static_cast<Cell*>(std::calloc(count, sizeof(Cell)));
}

Array* array_with(uintptr_t address, size_t bytes) {
  const auto holds = [&](const Array& a) { return address >= a.begin && address + bytes <= a.end; };
  if (last < used && holds(arrays[last])) return &arrays[last];
  for (int n = 0; n < used; ++n) {
    if (holds(arrays[n])) return &arrays[last = n];
  }
  return nullptr;
}

void outside(uintptr_t address, size_t bytes, const char* what, const void* from) {
  std::string text = std::string(what) + " of " + std::to_string(bytes) + " bytes outside of ";
  const Array* nearest = nullptr;
  uintptr_t distance = ~uintptr_t(0);
  for (int n = 0; n < used; ++n) {
    const Array& a = arrays[n];
    const uintptr_t here = address < a.begin ? a.begin - address : address - a.begin;
    const uintptr_t end = address > a.end ? address - a.end : a.end - address;
    const uintptr_t away = here < end ? here : end;
    if (away < distance) distance = away, nearest = &a;
  }
  if (nearest && distance < 1 << 30) {
    const int64_t place = static_cast<int64_t>(address - nearest->begin) / nearest->element;
    const int64_t extent = (nearest->end - nearest->begin) / nearest->element;
    text += nearest->name + "[" + std::to_string(extent) + "], at element " + std::to_string(place);
  } else {
    text += "every array";
  }
  found(text + ", by thread " + std::to_string(current_thread()), from);
  abandon_block();
}

void race(Array& array, size_t cell, const char* what, uint64_t other, const void* from) {
  if (array.told) return;
  array.told = true;
  const bool elsewhere = other >> 16 < first_phase;
  found(std::string("a race: ") + what + " " + array.name + "[" + std::to_string(cell) +
            "] by thread " + std::to_string(current_thread()) + " and by " +
            (other & kMany ? "others" : "thread " + std::to_string(other & kThread)) +
            (elsewhere ? " of another block" : ", no barrier between"),
        from);
}

// whether another thread was at an element, and nothing is between that and now
inline bool unordered(const Array& array, uint64_t stamp, uint64_t thread) {
  const uint64_t when = stamp >> 16;
  if (when == phase) return (stamp & kThread) != thread || stamp & kMany;
  return when && when < first_phase && !array.shared;
}

void accessed(const void* place, size_t bytes, bool writes, bool atomic, const void* from) {
  if (!in_kernel()) return;
  const uintptr_t address = reinterpret_cast<uintptr_t>(place);
  Array* found_array = array_with(address, bytes);
  if (!found_array) {
    if (on_stack(address)) return;
    outside(address, bytes, atomic ? "an atomic access" : writes ? "a write" : "a read", from);
  }
  Array& array = *found_array;
  const size_t first = (address - array.begin) >> array.shift;
  const size_t end = (address + bytes - 1 - array.begin) >> array.shift;
  const uint64_t thread = current_thread();
  for (size_t n = first; n <= end; ++n) {
    Cell& cell = array.cells[n];
    if (cell.write && unordered(array, cell.write, thread) && !(atomic && cell.write & kAtomic)) {
      race(array, n, writes ? "two writes of" : "a write and a read of", cell.write, from);
    }
    if (writes) {
      if (cell.read && (unordered(array, cell.read, thread) || cell.read & kOtherBlocks)) {
        race(array, n, "a read and a write of", cell.read, from);
      }
      cell.write = phase << 16 | (atomic ? kAtomic : 0) | thread;
    } else {
      uint64_t flags = cell.read & kOtherBlocks;
      const uint64_t when = cell.read >> 16;
      if (when == phase) {
        flags |= (cell.read & kMany) | ((cell.read & kThread) != thread ? kMany : 0);
      } else if (when && when < first_phase && !array.shared) {
        flags |= kOtherBlocks;
      }
      cell.read = phase << 16 | flags | thread;
    }
  }
}

}  // namespace

void begin_launch(const Kernel& kernel, const Value* arguments, const std::vector<Range>& given) {
  used = 0, shared_end = shared_bytes = 0, phase = 0, last = 0;
  for (int n = 0; n < kernel.count; ++n) {
    if (!kernel.sizes[n]) continue;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(arguments[n].array);
    uintptr_t end = begin;
    for (const Range& range : given) {
      if (range.begin == begin && range.end > end) end = range.end;
    }
    Range block;
    if (end == begin && block_of_memory(begin, &block)) end = block.end;
    bool known = false;
    for (int m = 0; m < used && !known; ++m) {  // one array under two names
      Array& other = arrays[m];
      known = other.begin < end && begin < other.end;
      if (!known) continue;
      other.name += std::string(" = ") + kernel.names[n];
      other.begin = other.begin < begin ? other.begin : begin;
      other.end = other.end > end ? other.end : end;
      if (kernel.sizes[n] < other.element) other.element = kernel.sizes[n];
    }
    if (!known && end > begin) add(kernel.names[n], begin, end, kernel.sizes[n], false);
  }
  for (int n = 0; n < used; ++n) make_cells(arrays[n]);
  of_memory = used;
  forbid(shared_memory, sizeof shared_memory);
}

void begin_block() {
  first_phase = ++phase;
  for (int n = of_memory; n < used; ++n) {
    const size_t bytes = arrays[n].end - arrays[n].begin;
    std::memset(reinterpret_cast<void*>(arrays[n].begin), 0xff, bytes);  // NaN: not yet written
  }
}

void begin_phase() { ++phase; }

void end_launch() {
  if (shared_bytes > kSharedBytes) {
    found("its shared memory of " + std::to_string(shared_bytes) + " bytes is more than a block has");
  }
  for (int n = 0; n < used; ++n) std::free(arrays[n].cells);
  used = 0;
}

void* shared_array(int number, const char* name, size_t element, size_t bytes) {
  for (int n = of_memory; n < used; ++n) {
    if (number_of_shared[n] == number) return reinterpret_cast<void*>(arrays[n].begin);
  }
  const size_t size = (bytes + kGap - 1) / kGap * kGap + kGap;
  if (shared_end + size > sizeof shared_memory || used == kArrays) {
    found("its shared memory is more than a block has");
    abandon_block();
  }
  char* begin = shared_memory + shared_end;
  allow(begin, bytes);
  std::memset(begin, 0xff, bytes);
  number_of_shared[used] = number;
  const uintptr_t at = reinterpret_cast<uintptr_t>(begin);
  add(name, at, at + bytes, element, true);
  make_cells(arrays[used - 1]);
  shared_end += size, shared_bytes += bytes;
  return begin;
}

void atomic_access(const void* place, size_t bytes, const void* from) {
  accessed(place, bytes, true, true, from);
}

}  // namespace cuda_on_cpu

#define HOOKS(bytes) \
  void __tsan_read##bytes(const void* at) { \
    cuda_on_cpu::accessed(at, bytes, false, false, __builtin_return_address(0)); \
  } \
  void __tsan_write##bytes(const void* at) { \
    cuda_on_cpu::accessed(at, bytes, true, false, __builtin_return_address(0)); \
  } \
  void __tsan_unaligned_read##bytes(const void* at) { \
    cuda_on_cpu::accessed(at, bytes, false, false, __builtin_return_address(0)); \
  } \
  void __tsan_unaligned_write##bytes(const void* at) { \
    cuda_on_cpu::accessed(at, bytes, true, false, __builtin_return_address(0)); \
  }

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(const void* at, size_t bytes) {
  cuda_on_cpu::accessed(at, bytes, false, false, __builtin_return_address(0));
}
void __tsan_write_range(const void* at, size_t bytes) {
  cuda_on_cpu::accessed(at, bytes, true, false, __builtin_return_address(0));
}
void __tsan_init() {}
}
