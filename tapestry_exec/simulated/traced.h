// Which bytes a kernel touches: the compiler calls these functions before each load and store (-fsanitize=thread), and
// they note the address. One that lies neither in memory that the caller named, nor in what is in use of the kernel's
// stack, among its arguments or in the module's own data (shared memory is there), ends the launch before the access is
// made. No library of the sanitizer takes part.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>

namespace shim {
static void stop(unsigned* where);
}

namespace traced {

struct Range {
  uint64_t start, nbytes;
};

// A stretch of memory: one byte of `reads` and `writes` for each of its bytes, and the touched range of each.
struct Block {
  uint64_t start, nbytes;
  unsigned char* touched[2];
  uint64_t low[2], high[2];
};

// An access that ended the launch: `where` is the thread's number in its block, and the block's.
struct Stray {
  uint64_t address, nbytes;
  uint32_t is_write, where[4];
};

static Block* blocks = nullptr;
static size_t count = 0, last = 0;
static Range stack, arguments, data, constants;
static bool is_inside = false;
static Stray stray;

// The module's image, whose bounds the linker gives: its head, and the end of its code.
extern "C" unsigned char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" unsigned char etext[] __attribute__((visibility("hidden")));

#define UNTRACED __attribute__((no_sanitize("thread")))

// Which bytes of the image kernels may write, and which they may read: those behind the code.
UNTRACED static void find_data() {
  const uint64_t image = (uint64_t)__ehdr_start;
  const Elf64_Ehdr* head = (const Elf64_Ehdr*)image;
  uint64_t start = 0, stop = 0, last = 0;
  for (int k = 0; k < head->e_phnum; ++k) {
    const Elf64_Phdr& part = *(const Elf64_Phdr*)(image + head->e_phoff + k * head->e_phentsize);
    if (part.p_type == PT_LOAD && part.p_flags & PF_W) {
      start = image + part.p_vaddr;
      stop = start + part.p_memsz;
    }
    if (part.p_type == PT_GNU_RELRO) last = image + part.p_vaddr + part.p_memsz;
  }
  if (start < last && last < stop) start = last;
  data.start = start;
  data.nbytes = stop - start;
  constants.start = (uint64_t)etext;
  constants.nbytes = stop - constants.start;
}

UNTRACED inline bool holds(uint64_t start, uint64_t size, uint64_t address, uint64_t nbytes) {
  return address - start < size && nbytes <= size - (address - start);
}

UNTRACED __attribute__((noinline)) static void note(const volatile void* at, size_t nbytes, int is_write) {
  if (!is_inside || nbytes == 0) return;
  const uint64_t address = (uint64_t)at, used = (uint64_t)__builtin_frame_address(0);
  if (holds(used, stack.start + stack.nbytes - used, address, nbytes)) return;
  for (size_t k = 0; k < count; ++k) {
    Block& block = blocks[last];
    if (holds(block.start, block.nbytes, address, nbytes)) {
      const uint64_t offset = address - block.start, stop = offset + nbytes;
      for (uint64_t n = offset; n < stop; ++n) block.touched[is_write][n] = 1;
      if (offset < block.low[is_write]) block.low[is_write] = offset;
      if (stop > block.high[is_write]) block.high[is_write] = stop;
      return;
    }
    last = last + 1 < count ? last + 1 : 0;
  }
  if (holds(arguments.start, arguments.nbytes, address, nbytes)) return;
  const Range& own = is_write ? data : constants;
  if (holds(own.start, own.nbytes, address, nbytes)) return;
  is_inside = false;
  stray.address = address;
  stray.nbytes = nbytes;
  stray.is_write = is_write;
  shim::stop(stray.where);
}

UNTRACED __attribute__((noinline)) static void begin(const void* at, size_t nbytes) {
  stack.start = (uint64_t)at;
  stack.nbytes = nbytes;
  is_inside = true;
}

}  // namespace traced

#define SHIM_ARGUMENTS(START, NBYTES) \
  traced::arguments.start = (uint64_t)(START), traced::arguments.nbytes = (NBYTES)
#define SHIM_KERNEL_BEGINS(STACK, NBYTES) traced::begin(STACK, NBYTES)
#define SHIM_KERNEL_ENDS() traced::is_inside = false

#define TRACED UNTRACED void
#define TRACED_SIZE(N)                                                          \
  TRACED __tsan_read##N(void* at) { traced::note(at, N, 0); }                   \
  TRACED __tsan_write##N(void* at) { traced::note(at, N, 1); }                  \
  TRACED __tsan_unaligned_read##N(void* at) { traced::note(at, N, 0); }         \
  TRACED __tsan_unaligned_write##N(void* at) { traced::note(at, N, 1); }        \
  TRACED __tsan_volatile_read##N(void* at) { traced::note(at, N, 0); }          \
  TRACED __tsan_volatile_write##N(void* at) { traced::note(at, N, 1); }

extern "C" {
TRACED_SIZE(1)
TRACED_SIZE(2)
TRACED_SIZE(4)
TRACED_SIZE(8)
TRACED_SIZE(16)
TRACED __tsan_read_range(void* at, size_t nbytes) { traced::note(at, nbytes, 0); }
TRACED __tsan_write_range(void* at, size_t nbytes) { traced::note(at, nbytes, 1); }
TRACED __tsan_vptr_update(void**, void*) {}
TRACED __tsan_vptr_read(void**) {}
TRACED __tsan_func_entry(void*) {}
TRACED __tsan_func_exit() {}
TRACED __tsan_init() {}

// Copies of the C library are not instrumented: the linker brings calls of them here (--wrap).
void* __real_memcpy(void* to, const void* from, size_t nbytes);
void* __real_memmove(void* to, const void* from, size_t nbytes);
void* __real_memset(void* to, int value, size_t nbytes);
UNTRACED void* __wrap_memcpy(void* to, const void* from, size_t nbytes) {
  traced::note(from, nbytes, 0);
  traced::note(to, nbytes, 1);
  return __real_memcpy(to, from, nbytes);
}
UNTRACED void* __wrap_memmove(void* to, const void* from, size_t nbytes) {
  traced::note(from, nbytes, 0);
  traced::note(to, nbytes, 1);
  return __real_memmove(to, from, nbytes);
}
UNTRACED void* __wrap_memset(void* to, int value, size_t nbytes) {
  traced::note(to, nbytes, 1);
  return __real_memset(to, value, nbytes);
}

// The memory that a kernel may touch, for the launches until the next call.
TRACED traced_blocks(void* blocks, size_t count) {
  traced::blocks = (traced::Block*)blocks;
  traced::count = count;
  traced::last = 0;
  traced::stray.nbytes = 0;
  traced::find_data();
}

// The access that ended the launch; of 0 bytes where there was none.
TRACED traced_stray(void* found) { *(traced::Stray*)found = traced::stray; }
}
