// Parts of a vocoder's stages, each in one launch: a causal convolution and the snake onward, or with SECOND a residual
// unit, whose convolution has a snake, a convolution of a single tap and the residual behind it.
//
// Blocks walk tiles of ROWS places of one stream. Producers copy a tile's rows with those that its taps reach back to,
// once for all taps, into a padded room of shared memory. Warpgroups of consumers own 64 places of the tile each: they
// load a tap's rows into registers at that tap's shift, and multiply them by weights in shared memory. Weights are kept
// there, if they fit (RESIDENT), or pass through a ring, stage after stage. A product's result is, once its snake is
// taken, the next product's left side without leaving the registers.
//
// Columns are stored in an order of their own: a lane of the tensor cores has two of every eight columns, and by that
// order the eight channels that it has in a group of 32 are adjacent. The second product sums over its input in the same
// order. A place's columns may be several places of the result, of WIDTH channels each: an upsampling convolution's.
//
// Given by the compiler's options: CHANNELS of the input, COLUMNS, WIDTH, TAPS, REACH (the most places before a tile),
// SECOND, DEPTH, WARPGROUPS, RING, ROOMS.
//
// Shape letters: B streams, T places of each, C channels, N columns, P places of the result's tail.

#include "common.cuh"
#include "hopper.cuh"

constexpr int C = CHANNELS, N = COLUMNS, WIDE = 96, PARTS = N / WIDE;  // WIDE: columns of a tensor core product
constexpr int WARPS = 4 * WARPGROUPS, THREADS = 32 * WARPS;            // of consumers
constexpr int COPIERS = 96;                                            // threads that copy rows
constexpr int ROWS = 64 * WARPGROUPS;
constexpr int PITCH = 2 * C + 16;                                      // bytes of a row: off its neighbours' banks
constexpr int ROOM_BYTES = (ROWS + REACH) * PITCH;
constexpr int STEPS = DEPTH / 16, CHUNKS = C / DEPTH;                  // a stage: DEPTH of the sum, all columns
constexpr int FIRST = TAPS * CHUNKS, STAGES = FIRST + (SECOND ? CHUNKS : 0), STAGE_BYTES = 2 * DEPTH * N;
constexpr bool RESIDENT = RING == STAGES;
constexpr bool TURNS = RESIDENT && WARPGROUPS == 2;
static_assert(N % WIDE == 0 && C % DEPTH == 0 && DEPTH % 16 == 0, "products take 96 columns and 16 of the sum");
static_assert(!SECOND || C == N, "the residual is of the input's channels");
static_assert(WIDTH % 32 == 0 && N % WIDTH == 0, "groups of 32 columns are channels of one place");

struct Arguments {
    const u16 *rows;     // [B, in_rows, C]
    const u16 *weights;  // [STAGES, DEPTH / 8, N / 8, 8, 8]
    u16 *x;              // [B, T * N]: the residual with SECOND, and the sum if `keep`
    u16 *room;           // [B, `tail` + T * N], of which a stream has `room_row` numbers
    const u16 *before;   // [B, `tail`], of which a stream has `tail_row` numbers; `after` likewise
    u16 *after;
    const float *bias, *turns, *height;             // with SECOND [C]: the first convolution's, and its snake's
    const float *shift, *next_turns, *next_height;  // [WIDTH]: of the snake onward
    int batch, length, in_rows, dilation, room_row, tail_row, tail, keep;  // tail: P * WIDTH
};

// ── tensor cores ──

__device__ __forceinline__ void load(u32 (&a)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at));
}
// Weights of 16 of the sum and WIDE columns at a shared address: bricks of 8 by 8, without swizzle.
__device__ __forceinline__ u64 described(u32 at) {
    constexpr u64 BY_DEPTH = N * 16 >> 4, BY_COLUMN = 128 >> 4;
    return (u64)((at & 0x3ffff) >> 4) | BY_DEPTH << 16 | BY_COLUMN << 32;
}
// c [64, WIDE] (+)= a [64, 16] @ weights
__device__ __forceinline__ void multiply(float (&c)[48], const u32 (&a)[4], u64 weights, bool add) {
#define C8(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
              "+f"(c[i + 6]), "+f"(c[i + 7])
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %53, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "
        "%46, %47}, {%48, %49, %50, %51}, %52, p, 1, 1, 0;\n}"
        : C8(0), C8(8), C8(16), C8(24), C8(32), C8(40)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(weights), "r"((int)add));
#undef C8
}

// ── numbers ──

// `walkgraph.layers.kernels.snake.snake_of`
__device__ __forceinline__ float snake(float v, float turns, float height) {
    float angle = v * turns;
    angle -= rintf(angle);
    float q = angle * angle;
    float wave = -3.3154454f * q + 13.022018f;
    wave = wave * q - 30.094521f;
    wave = wave * q + 42.726448f;
    wave = wave * q - 32.469639f;
    wave = wave * q + 9.8696041f;
    return v + wave * q * height;
}
struct Four {
    float v[4];
    __device__ __forceinline__ explicit Four(const float *p) {
        float4 f = __ldg((const float4 *)p);
        v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
    }
};

// ── barriers ──

struct Ring {
    u32 stages, barriers;  // of full ones, then of free ones
    int size, bytes;
    __device__ __forceinline__ u32 at(int i) const { return stages + i * bytes; }
    __device__ __forceinline__ u32 full(int i) const { return barriers + i * 8; }
    __device__ __forceinline__ u32 free(int i) const { return barriers + (size + i) * 8; }
};
struct Place {
    int at = 0;
    u32 parity = 0;
    __device__ __forceinline__ void next(int size) {
        if (++at == size) at = 0, parity ^= 1;
    }
};

struct Tile {
    int stream, start;
    __device__ __forceinline__ Tile(const Arguments &a, int number) {
        int each = (a.length + ROWS - 1) / ROWS;
        stream = number / each, start = number % each * ROWS;
    }
};
__device__ __forceinline__ int tiles(const Arguments &a) { return a.batch * ((a.length + ROWS - 1) / ROWS); }

// ── the producers ──

__device__ __forceinline__ void copy16(u32 to, const u16 *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Arrives when the thread's copies have.
__device__ __forceinline__ void barrier_arrive_behind_copies(u32 at) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
}

// One thread.
__device__ __forceinline__ void copy_weights(const Arguments &a, const Ring &ring) {
    u64 kept;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(kept));
    Place stage;
    int rounds = RESIDENT ? 1 : (tiles(a) - blockIdx.x + gridDim.x - 1) / gridDim.x;
    for (int round = 0; round < rounds; ++round)
        for (int i = 0; i < STAGES; ++i, stage.next(RING)) {
            barrier_wait(ring.free(stage.at), stage.parity ^ 1);
            barrier_expect(ring.full(stage.at), STAGE_BYTES);
            copy(ring.at(stage.at), a.weights + (u64)i * (STAGE_BYTES / 2), STAGE_BYTES, ring.full(stage.at), kept);
        }
}

// COPIERS threads, of which this is number `thread`.
__device__ __forceinline__ void copy_rows(const Arguments &a, const Ring &rooms, int thread) {
    constexpr int LOADS = C / 8;  // of a row
    asm volatile("griddepcontrol.wait;" ::: "memory");
    Place room;
    for (int number = blockIdx.x; number < tiles(a); number += gridDim.x, room.next(ROOMS)) {
        Tile tile(a, number);
        int loads = (min(ROWS, a.length - tile.start) + (TAPS - 1) * a.dilation) * LOADS;
        const u16 *from = a.rows + ((u64)tile.stream * a.in_rows + tile.start) * C;
        u32 to = rooms.at(room.at);
        barrier_wait(rooms.free(room.at), room.parity ^ 1);
        for (int i = thread; i < loads; i += COPIERS) copy16(to + i / LOADS * PITCH + i % LOADS * 16, from + i * 8);
        barrier_arrive_behind_copies(rooms.full(room.at));
    }
}

// ── the consumers ──

// Two warpgroups multiply by turns, as each has the tensor cores to itself while the other takes snakes.
__device__ __forceinline__ void turn_begins(int group) { asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(THREADS) : "memory"); }
__device__ __forceinline__ void turn_ends(int group) { asm volatile("bar.arrive %0, %1;" ::"r"(2 - group), "n"(THREADS) : "memory"); }

struct Consumer {
    const Arguments &a;
    Ring weights, rooms;
    int warp, lane;
    Place stage, room;

    __device__ __forceinline__ void loaded(u32 (&to)[STEPS][4], int number) const {
        int tap = number / CHUNKS, depth = number % CHUNKS * DEPTH;
        u32 at = rooms.at(room.at) + (warp * 16 + (lane & 15) + tap * a.dilation) * PITCH + (lane >> 4) * 16 + depth * 2;
#pragma unroll
        for (int step = 0; step < STEPS; ++step) load(to[step], at + step * 32);
    }
    __device__ __forceinline__ void products(float (&c)[PARTS][48], const u32 (*rows)[4], bool add) {
        barrier_wait(weights.full(stage.at), stage.parity);
        u32 at = weights.at(stage.at);
        begin_products();
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
#pragma unroll
            for (int part = 0; part < PARTS; ++part)
                multiply(c[part], rows[step], described(at + step * (N * 32) + part * (WIDE * 16)), add || step);
        commit_products();
        if (!RESIDENT) stage.next(RING);
        else ++stage.at;
    }
    // The stage `back` before the present one.
    __device__ __forceinline__ void freed(int back) const {
        if (!RESIDENT && lane == 0) barrier_arrive(weights.free((stage.at + RING - back) % RING));
    }
    // The residual, so early that it is here when it is needed.
    __device__ __forceinline__ void residual(uint4 (&old)[N / 32][2], const Tile &tile) const {
        const u16 *x = a.x + (u64)tile.stream * a.length * N + (lane & 3) * 8;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int row = min(row_of(tile, half), a.length - 1);
#pragma unroll
            for (int group = 0; group < N / 32; ++group) old[group][half] = *(const uint4 *)(x + row * N + group * 32);
        }
    }
    __device__ __forceinline__ int row_of(const Tile &tile, int half) const {
        return tile.start + warp * 16 + half * 8 + (lane >> 2);
    }
    __device__ __forceinline__ void first(float (&c)[PARTS][48]) {
        u32 rows[2][STEPS][4];
        loaded(rows[0], 0);
#pragma unroll
        for (int i = 0; i < FIRST; ++i) {
            products(c, rows[i & 1], i > 0);
            if (i + 1 < FIRST && i == 0) loaded(rows[1], 1);
            if (i > 0) {
                finish_products<1>();
                freed(2);
                if (i + 1 < FIRST) loaded(rows[(i + 1) & 1], i + 1);
            }
        }
        if (lane == 0) barrier_arrive(rooms.free(room.at));
        finish_products<0>();
        freed(1);
        room.next(ROOMS);
        if (RESIDENT && !SECOND) stage.at = 0;
    }
    // The snake of the first product, as the left side of the second.
    __device__ __forceinline__ void between(u32 (&inner)[C / 16][4], const float (&c)[PARTS][48]) const {
#pragma unroll
        for (int i = 0; i < C / 16; ++i) {
            int at = i / 2 * 32 + (lane & 3) * 8 + i % 2 * 4;
            Four bias(a.bias + at), turns(a.turns + at), height(a.height + at);
            const float *from = c[i / 6] + i % 6 * 8;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                int l = j / 2 * 2;
                inner[i][j] = pair(snake(from[j * 2] + bias.v[l], turns.v[l], height.v[l]),
                                   snake(from[j * 2 + 1] + bias.v[l + 1], turns.v[l + 1], height.v[l + 1]));
            }
        }
    }
    __device__ __forceinline__ void second(float (&c)[PARTS][48], const u32 (&inner)[C / 16][4]) {
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i) products(c, inner + i * STEPS, i > 0);
        finish_products<0>();
#pragma unroll
        for (int i = CHUNKS; i; --i) freed(i);
        if (RESIDENT) stage.at = 0;
    }
    __device__ __forceinline__ void onward(const float (&c)[PARTS][48], const uint4 (&residual)[N / 32][2], const Tile &tile) const {
        u64 own = (u64)tile.stream * a.length * N;
        u16 *x = a.x + own, *room = a.room + (u64)tile.stream * a.room_row, *after = a.after + (u64)tile.stream * a.tail_row;
        int made = a.length * N;
#pragma unroll
        for (int group = 0; group < N / 32; ++group) {
            int column = group * 32 + (lane & 3) * 8, channel = group * 32 % WIDTH + (lane & 3) * 8;
            Four shift[2] = {Four(a.shift + channel), Four(a.shift + channel + 4)};
            Four turns[2] = {Four(a.next_turns + channel), Four(a.next_turns + channel + 4)};
            Four height[2] = {Four(a.next_height + channel), Four(a.next_height + channel + 4)};
            const float *from = c[group / 3] + group % 3 * 16;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                int row = row_of(tile, half), at = row * N + column;
                if (row >= a.length) continue;
                uint4 old = SECOND ? residual[group][half] : make_uint4(0, 0, 0, 0);
                u32 given[4] = {old.x, old.y, old.z, old.w}, sum[4], out[4];
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    float l = from[j * 4 + half * 2] + low(given[j]), h = from[j * 4 + half * 2 + 1] + high(given[j]);
                    int k = j % 2 * 2;
                    const Four &s = shift[j / 2], &t = turns[j / 2], &e = height[j / 2];
                    sum[j] = pair(l, h);
                    out[j] = pair(snake(l + s.v[k], t.v[k], e.v[k]), snake(h + s.v[k + 1], t.v[k + 1], e.v[k + 1]));
                }
                uint4 next = make_uint4(out[0], out[1], out[2], out[3]);
                if (a.keep) *(uint4 *)(x + at) = make_uint4(sum[0], sum[1], sum[2], sum[3]);
                *(uint4 *)(room + a.tail + at) = next;
                if (at >= made - a.tail) *(uint4 *)(after + a.tail + at - made) = next;
            }
        }
    }
    // The tail goes before a stream's room, and what of it the next tail still needs into that.
    __device__ __forceinline__ void tails(const Tile &tile) const {
        const u16 *before = a.before + (u64)tile.stream * a.tail_row;
        u16 *room = a.room + (u64)tile.stream * a.room_row, *after = a.after + (u64)tile.stream * a.tail_row;
        int made = a.length * N;
        for (int i = (warp * 32 + lane) * 8; i < a.tail; i += THREADS * 8) {
            uint4 value = *(const uint4 *)(before + i);
            *(uint4 *)(room + i) = value;
            if (i >= made) *(uint4 *)(after + i - made) = value;
        }
    }
    __device__ __forceinline__ void run() {
        asm volatile("griddepcontrol.wait;" ::: "memory");
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
        int group = warp / 4;
        if (TURNS && group) turn_ends(1);
        for (int number = blockIdx.x; number < tiles(a); number += gridDim.x) {
            Tile tile(a, number);
            if (tile.start == 0) tails(tile);
            float c[PARTS][48];
            uint4 old[N / 32][2];
            constexpr bool EARLY = SECOND && PARTS == 1;
            if (EARLY) residual(old, tile);
            barrier_wait(rooms.full(room.at), room.parity);
            if (TURNS) turn_begins(group);
            first(c);
            if (TURNS) turn_ends(group);
            if constexpr (SECOND) {
                u32 inner[C / 16][4];
                between(inner, c);
                if (!EARLY) residual(old, tile);  // before, there are no registers for it
                second(c, inner);
            }
            onward(c, old, tile);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS + 128, 1) vocoder_stage(const __grid_constant__ Arguments a) {
    extern __shared__ __align__(1024) char shared[];
    u32 base = shared_address(shared);
    constexpr int KEPT = RING * STAGE_BYTES, ALL = KEPT + ROOMS * ROOM_BYTES;
    Ring weights{base, base + ALL, RING, STAGE_BYTES}, rooms{base + KEPT, base + ALL + RING * 16, ROOMS, ROOM_BYTES};
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < RING; ++i) barrier_init(weights.full(i), 1), barrier_init(weights.free(i), WARPS);
        for (int i = 0; i < ROOMS; ++i) barrier_init(rooms.full(i), COPIERS), barrier_init(rooms.free(i), WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    // Registers of a thread: 64,512 in all, of which the products take most.
    if (warp >= WARPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(WARPGROUPS == 2 ? 40 : 32));
        if (warp > WARPS) copy_rows(a, rooms, threadIdx.x - THREADS - 32);
        else if (lane == 0) copy_weights(a, weights);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(WARPGROUPS == 2 ? 232 : 160));
        Consumer{a, weights, rooms, warp, lane}.run();
    }
}
