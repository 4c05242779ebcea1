// Raw CUDA kernels on a CPU: each thread of a block is a fibre, or a part of one as long as it meets no barrier.
//
// Shared memory lies in one section that is filled with 0xFF before each block. Blocks, and the threads between two
// barriers, run in an order drawn from a seed, so that what only held in one order comes out. A barrier that not all
// threads of a block reach, or not all at one line, is an error. Not covered: warps (shuffles, votes), matrix
// units, textures, inline PTX.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ __attribute__((section("shim_shared"))) static

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
typedef dim3 uint3;

static dim3 threadIdx, blockIdx, blockDim, gridDim;
static const int warpSize = 32;

// The bounds of the section, which the linker gives; a source without __shared__ has none.
extern "C" unsigned char __start_shim_shared[] __attribute__((weak, visibility("hidden")));
extern "C" unsigned char __stop_shim_shared[] __attribute__((weak, visibility("hidden")));

// What is told to a tracer of accesses, if one is included before: which bytes are the arguments, that a kernel begins or
// goes on on a stack, and that it ends or waits.
#ifndef SHIM_ARGUMENTS
#define SHIM_ARGUMENTS(START, NBYTES)
#define SHIM_KERNEL_BEGINS(STACK, NBYTES)
#define SHIM_KERNEL_ENDS()
#endif

namespace shim {

enum Code { DONE = 0, DIVERGED = 1, STOPPED = 2 };

#ifdef __SANITIZE_ADDRESS__
constexpr size_t STACK_NBYTES = 1 << 20;
#else
constexpr size_t STACK_NBYTES = 1 << 18;
#endif

// Beyond the stack's upper end, where it is used first: who writes before something that lies there leaves it alone.
constexpr size_t STACK_MARGIN_NBYTES = 1 << 16;

struct Fibre {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[STACK_NBYTES + STACK_MARGIN_NBYTES]};
  unsigned thread = 0;
  int line = 0;  // of the barrier that it waits at; 0: it does not wait
};

// What a block is made of; threads that met no barrier share one fibre, one after another.
struct State {
  ucontext_t scheduler;
  std::vector<std::unique_ptr<Fibre>> fibres;
  std::vector<unsigned> order;
  size_t next = 0;
  Fibre* running = nullptr;
  bool is_stopped = false;
  void (*body)(void*) = nullptr;
  void* argument = nullptr;
};

static State state;

__attribute__((noinline)) static void enter(unsigned thread) {
  state.running->thread = thread;
  threadIdx = dim3(thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y);
}

static void work() {
  while (state.next < state.order.size()) {
    enter(state.order[state.next++]);
    state.body(state.argument);
  }
  state.running->line = 0;
  swapcontext(&state.running->context, &state.scheduler);
}

__attribute__((noinline)) static void barrier(int line) {
  SHIM_KERNEL_ENDS();
  Fibre* self = state.running;
  self->line = line;
  swapcontext(&self->context, &state.scheduler);
  enter(self->thread);
  SHIM_KERNEL_BEGINS(self->stack.get(), STACK_NBYTES);
}

// Ends the launch from inside a kernel, and says where it was: the thread, and the block's three numbers.
[[maybe_unused]] __attribute__((noinline)) static void stop(unsigned* where) {
  const unsigned at[] = {state.running->thread, blockIdx.x, blockIdx.y, blockIdx.z};
  std::copy(at, at + 4, where);
  state.is_stopped = true;
  swapcontext(&state.running->context, &state.scheduler);
}

static void resume(Fibre& fibre) {
  state.running = &fibre;
  swapcontext(&state.scheduler, &fibre.context);
}

static Fibre& fresh(size_t number) {
  if (number == state.fibres.size()) state.fibres.emplace_back(new Fibre);
  Fibre& fibre = *state.fibres[number];
  getcontext(&fibre.context);
  fibre.context.uc_stack.ss_sp = fibre.stack.get();
  fibre.context.uc_stack.ss_size = STACK_NBYTES;
  fibre.context.uc_link = nullptr;
  makecontext(&fibre.context, work, 0);
  return fibre;
}

static void say(char* message, size_t size, const char* what, const Fibre& one, const Fibre* other) {
  int n = snprintf(message, size, "block (%u, %u, %u): thread %u waits at the __syncthreads of line %d, ", blockIdx.x,
                   blockIdx.y, blockIdx.z, one.thread, one.line);
  if (other != nullptr)
    snprintf(message + n, size - n, "thread %u at that of line %d%s", other->thread, other->line, what);
  else
    snprintf(message + n, size - n, "%s", what);
}

// Poisoned byte by byte: memset would be checked by the address sanitizer, and stop at its own red zones.
__attribute__((no_sanitize_address)) static void poison(unsigned char* from, const unsigned char* to) {
  for (volatile unsigned char* at = from; at != to; ++at) *at = 0xFF;
}

static int run_block(std::mt19937_64& draw, char* message, size_t size) {
  poison(__start_shim_shared, __stop_shim_shared);
  std::shuffle(state.order.begin(), state.order.end(), draw);
  state.next = 0;
  std::vector<Fibre*> waiting;
  for (size_t n = 0; state.next < state.order.size(); ++n) {
    Fibre& fibre = fresh(n);
    resume(fibre);
    if (state.is_stopped) return STOPPED;
    if (fibre.line != 0) waiting.push_back(&fibre);
  }
  size_t alive = state.order.size();
  while (!waiting.empty()) {
    if (waiting.size() != alive) {
      say(message, size, "others have ended or do not reach it", *waiting[0], nullptr);
      return DIVERGED;
    }
    for (Fibre* fibre : waiting)
      if (fibre->line != waiting[0]->line) {
        say(message, size, "", *waiting[0], fibre);
        return DIVERGED;
      }
    std::shuffle(waiting.begin(), waiting.end(), draw);
    std::vector<Fibre*> again;
    for (Fibre* fibre : waiting) {
      resume(*fibre);
      if (state.is_stopped) return STOPPED;
      if (fibre->line != 0) again.push_back(fibre);
    }
    if (again.empty()) break;
    waiting.swap(again);
  }
  return DONE;
}

template <class Call>
int run(const unsigned* grid, const unsigned* block, uint64_t seed, char* message, size_t size, Call call) {
  std::mt19937_64 draw(seed);
  gridDim = dim3(grid[0], grid[1], grid[2]);
  blockDim = dim3(block[0], block[1], block[2]);
  state.order.resize(size_t(block[0]) * block[1] * block[2]);
  std::iota(state.order.begin(), state.order.end(), 0u);
  state.argument = &call;
  state.is_stopped = false;
  state.body = [](void* it) { (*static_cast<Call*>(it))(); };
  std::vector<uint64_t> blocks(size_t(grid[0]) * grid[1] * grid[2]);
  std::iota(blocks.begin(), blocks.end(), uint64_t(0));
  std::shuffle(blocks.begin(), blocks.end(), draw);
  for (uint64_t number : blocks) {
    blockIdx = dim3(number % grid[0], number / grid[0] % grid[1], number / grid[0] / grid[1]);
    const int code = run_block(draw, message, size);
    if (code != DONE) return code;
  }
  return DONE;
}

// What a kernel takes: told to the host before it passes anything.
template <class... A>
int sizes(void (*)(A...), size_t* found) {
  const size_t each[] = {sizeof(A)..., 0};
  std::copy(each, each + sizeof...(A), found);
  return sizeof...(A);
}

// The arguments come as pointers to their bytes, as cuLaunchKernel takes them, perhaps unaligned.
template <class... A, size_t... I>
int launch(void (*kernel)(A...), const unsigned* grid, const unsigned* block, void** args, uint64_t seed,
           char* message, size_t size, std::index_sequence<I...>) {
  std::tuple<std::remove_const_t<A>...> held;
  (std::memcpy(static_cast<void*>(&std::get<I>(held)), args[I], sizeof(A)), ...);
  SHIM_ARGUMENTS(&held, sizeof held);
  return run(grid, block, seed, message, size, [&] {
    const auto entry = kernel;
    auto& mine = held;
    SHIM_KERNEL_BEGINS(state.running->stack.get(), STACK_NBYTES);
    entry(std::get<I>(mine)...);
    SHIM_KERNEL_ENDS();
  });
}

template <class... A>
int launch(void (*kernel)(A...), const unsigned* grid, const unsigned* block, void** args, uint64_t seed,
           char* message, size_t size) {
  return launch(kernel, grid, block, args, seed, message, size, std::index_sequence_for<A...>());
}

}  // namespace shim

#define SHIM_ENTRY(NAME)                                                                                        \
  extern "C" int shim_sizes_##NAME(size_t* found) { return shim::sizes(&NAME, found); }                         \
  extern "C" int shim_launch_##NAME(const unsigned* grid, const unsigned* block, void** args, uint64_t seed,    \
                                    char* message, size_t size) {                                               \
    return shim::launch(&NAME, grid, block, args, seed, message, size);                                         \
  }

#define __syncthreads() shim::barrier(__LINE__)

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __syncwarp(unsigned = ~0u) {}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t(a) * b) >> 32); }
inline int __mulhi(int a, int b) { return int((int64_t(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
template <class T>
inline T __ldg(const T* p) { return *p; }

// One thread runs at a time, so that these are atomic as they stand; old is what they return.
template <class T>
T atomicAdd(T* at, std::common_type_t<T> x) { T old = *at; *at = old + x; return old; }
template <class T>
T atomicSub(T* at, std::common_type_t<T> x) { T old = *at; *at = old - x; return old; }
template <class T>
T atomicMin(T* at, std::common_type_t<T> x) { T old = *at; *at = x < old ? x : old; return old; }
template <class T>
T atomicMax(T* at, std::common_type_t<T> x) { T old = *at; *at = x > old ? x : old; return old; }
template <class T>
T atomicExch(T* at, std::common_type_t<T> x) { T old = *at; *at = x; return old; }
template <class T>
T atomicOr(T* at, std::common_type_t<T> x) { T old = *at; *at = old | x; return old; }
template <class T>
T atomicAnd(T* at, std::common_type_t<T> x) { T old = *at; *at = old & x; return old; }
template <class T>
T atomicCAS(T* at, std::common_type_t<T> was, std::common_type_t<T> x) { T old = *at; if (old == was) *at = x; return old; }
template <class T>
T min(T a, std::common_type_t<T> b) { return b < a ? b : a; }
template <class T>
T max(T a, std::common_type_t<T> b) { return a < b ? b : a; }
