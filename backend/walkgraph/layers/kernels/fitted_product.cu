// Products of up to a few hundred rows: gelu(norm(x) @ weight.T + bias) + residual, or queries, keys and values that are
// turned and written to their places.
//
// The tensor cores take 64 of the result's columns at a time, and any multiple of 8 rows: their left side is the
// weight, their right side x. So tiles fit the rows (258 are two of 136, where the usual tiles would compute 384).
//
// One thread, the producer, copies both sides into a ring of shared memory. Weights of the first stages are on their
// way before the launch before this one has ended. Warpgroups multiply: each has 64 columns and ROWS rows of the tile.
// Blocks of a cluster share a tile, and each has a part of K and finishes a share of the rows. Every block sends the other
// shares' sums into the inboxes of their blocks, and waits for nothing but its own inbox; sums are added in a fixed order.
//
// A norm costs no pass: the weight includes the norm's scale, the launch that wrote x has left the sums of its rows and
// of their squares, and the result is corrected for them at the end: with W the scaled weight,
//     norm(x) @ weight.T = (x @ W.T - mean * sums of W's rows) / deviation + offset @ weight.T
//
// Given by the compiler's options: ROWS of a tile, WIDE (its warpgroups, of 64 columns each), SPLIT (blocks that share the
// K of a tile), STAGES, NORMED, GELU, ADDS (the residual), PLACES, DIM and PAGE (of places), ACCUMULATORS and PRODUCT
// (the instruction for ROWS).
//
// Shape letters: R rows, N columns of the result, K, H query heads, G key/value heads, D = DIM.

#include "common.cuh"
#include "hopper.cuh"

constexpr int DEPTH = 64, LINE = 2 * DEPTH;        // of K in a stage, and its bytes
constexpr int COLUMNS = 64 * WIDE;
constexpr int WEIGHT_BYTES = COLUMNS * LINE, STAGE_BYTES = WEIGHT_BYTES + ROWS * LINE;
constexpr int SUMMED = 64;                         // columns of one sum
constexpr int MULTIPLIERS = 128 * WIDE, READERS = NORMED ? 128 : 0;  // threads; READERS: of tables
constexpr int FINISHERS = MULTIPLIERS + READERS;
// A warp more than eight would leave each thread 168 registers, so one of the readers' warps produces.
constexpr int PRODUCER = NORMED ? FINISHERS - 32 : FINISHERS, THREADS = PRODUCER + 32;
constexpr int PITCH = COLUMNS + 4;                 // floats of a staged row: off its neighbours' banks
constexpr int CHUNK = 8, CHUNKS = COLUMNS / CHUNK; // columns that a thread writes at once
constexpr int BANDS = ROWS / 8, SHARED_BANDS = (BANDS + SPLIT - 1) / SPLIT;  // of 8 rows; a block's share of them
constexpr int SHARE = 8 * SHARED_BANDS, TURNS = (SHARE * CHUNKS + FINISHERS - 1) / FINISHERS;
constexpr int PASSES = (SHARE + 95) / 96;          // of the readers but the producer's warp
constexpr int BAND_BYTES = MULTIPLIERS * 16, PART_BYTES = SHARED_BANDS * BAND_BYTES;  // as the threads' registers have it
constexpr int STAGED_BYTES = SHARE * PITCH * 4;
constexpr int RING_BYTES = STAGES * STAGE_BYTES > STAGED_BYTES ? STAGES * STAGE_BYTES : STAGED_BYTES;
static_assert(ROWS % 8 == 0 && ROWS <= 256, "the tensor cores take multiples of 8 rows up to 256");
static_assert(NORMED || !PLACES, "the readers find the places");
static_assert(FINISHERS % CHUNKS == 0, "a thread writes the same columns of several rows");

struct Arguments {
    TensorMap weight;      // [N, K]
    TensorMap x;           // [R, K]
    const float *bias;     // [N]
    const float *sums;     // NORMED [R, K / SUMMED, 2]: of x, and of its squares
    const float *totals;   // NORMED [N]: of W's rows
    const u16 *residual;   // ADDS [R, N]
    float *next_sums;      // ADDS [R, N / SUMMED, 2]
    u16 *out;              // [R, N]; PLACES [R, H * D]
    u16 *k;                // PLACES [slots, G, D], of which a slot has `slot_row` numbers; `v` likewise
    u16 *v;
    const float *cos;      // PLACES [B, n, D]; `sin` likewise
    const float *sin;
    const int *sequences;  // PLACES [B]: rows of the tables
    const int *pages;      // PLACES [tables, `reach`]
    const int *lengths;    // PLACES [tables]
    int rows, columns, depth;
    float eps;
    int tokens, reach, queries, keys, slot_row, cos_row, cos_token;  // queries: H * D, keys: G * D
};

// c [64, ROWS] (+)= 16 of K
__device__ __forceinline__ void multiply(float (&c)[ROWS / 2], u64 a, u64 b, bool add) {
    asm volatile(PRODUCT : ACCUMULATORS : "l"(a), "l"(b), "r"((int)add));
}

// ── numbers ──

struct Eight {
    float v[CHUNK];
    __device__ __forceinline__ Eight() {
#pragma unroll
        for (int i = 0; i < CHUNK; i++) v[i] = 0.f;
    }
    __device__ __forceinline__ explicit Eight(const float *p) : Eight(__ldg((const float4 *)p), __ldg((const float4 *)p + 1)) {}
    __device__ __forceinline__ Eight(float4 a, float4 b) : v{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w} {}
    __device__ __forceinline__ explicit Eight(uint4 p) : v{low(p.x), high(p.x), low(p.y), high(p.y), low(p.z), high(p.z), low(p.w), high(p.w)} {}
    __device__ __forceinline__ void add(const Eight &other) {
#pragma unroll
        for (int i = 0; i < CHUNK; i++) v[i] += other.v[i];
    }
    __device__ __forceinline__ uint4 rounded() const {
        return make_uint4(pair(v[0], v[1]), pair(v[2], v[3]), pair(v[4], v[5]), pair(v[6], v[7]));
    }
};
// The tanh form, as x times a sigmoid.
__device__ __forceinline__ float gelu(float x) {
    float z = 1.5957691216f * (x + 0.044715f * x * x * x);
    return __fdividef(x, 1.f + __expf(-z));
}

// ── the block's parts ──

struct Tile {
    int row, column, part;  // part: of K
    __device__ __forceinline__ explicit Tile(const Arguments &given) {
        int all = given.columns / COLUMNS, tile = blockIdx.x / SPLIT;
        part = blockIdx.x % SPLIT, column = tile % all * COLUMNS, row = tile / all * ROWS;
    }
};
struct Ring {
    u32 stages;
    __device__ __forceinline__ u32 weight(int i) const { return stages + i % STAGES * STAGE_BYTES; }
    __device__ __forceinline__ u32 x(int i) const { return weight(i) + WEIGHT_BYTES; }
    // Sums of another part of K: `from` counts the other parts.
    __device__ __forceinline__ u32 inbox(int from) const { return stages + RING_BYTES + from * PART_BYTES; }
    __device__ __forceinline__ u32 full(int i) const { return inbox(SPLIT - 1) + i % STAGES * 8; }
    __device__ __forceinline__ u32 free(int i) const { return full(i) + STAGES * 8; }
    __device__ __forceinline__ u32 landed() const { return inbox(SPLIT - 1) + STAGES * 16; }  // the inbox is complete
    __device__ __forceinline__ u32 moments(int row) const { return landed() + 8 + row * 8; }
    __device__ __forceinline__ u32 slot(int row) const { return moments(ROWS) + row * 4; }
    __device__ __forceinline__ void wait_full(int i) const { barrier_wait(full(i), i / STAGES & 1); }
    __device__ __forceinline__ void wait_free(int i) const { barrier_wait(free(i), (i / STAGES & 1) ^ 1); }
};

struct Producer {
    const Arguments &given;
    const Tile &tile;
    const Ring &ring;
    int steps;
    __device__ __forceinline__ void weight(int i) const {
        barrier_expect(ring.full(i), STAGE_BYTES);
        copy_tile(ring.weight(i), &given.weight, (tile.part * steps + i) * DEPTH, tile.column, ring.full(i));
    }
    __device__ __forceinline__ void x(int i) const {
        copy_tile(ring.x(i), &given.x, (tile.part * steps + i) * DEPTH, tile.row, ring.full(i));
    }
    __device__ __forceinline__ void first_weights() const {
        for (int i = 0; i < min(STAGES, steps); i++) weight(i);
    }
    __device__ __forceinline__ void first_x() const {
        for (int i = 0; i < min(STAGES, steps); i++) x(i);
    }
    __device__ __forceinline__ void others() const {
        for (int i = STAGES; i < steps; i++) {
            ring.wait_free(i);
            weight(i);
            x(i);
        }
    }
};

// The block's share of the rows, a chunk of columns a thread and turn.
struct Share {
    int first, last, column;  // rows of the tile
    __device__ __forceinline__ Share(const Arguments &given, const Tile &tile)
        : first(tile.part * SHARE), last(min(first + SHARE, min(ROWS, given.rows - tile.row))),
          column((int)threadIdx.x % CHUNKS * CHUNK) {}
    __device__ __forceinline__ int row(int turn) const { return first + ((int)threadIdx.x + turn * FINISHERS) / CHUNKS; }
    __device__ __forceinline__ bool has(int turn) const { return row(turn) < last; }
};

// Mean and inverse deviation of the block's share of the rows, and where their keys go, into shared memory.
__device__ __forceinline__ void read_tables(const Arguments &given, const Tile &tile, const Ring &ring, const Share &share, int thread) {
    const int parts = given.depth / SUMMED;
    int row[PASSES], table[PASSES], position[PASSES], page[PASSES];
    float total[PASSES] = {}, squares[PASSES] = {};
    // All passes at once: each of these reads waits for the one before it.
#pragma unroll
    for (int i = 0; i < PASSES; i++) {
        row[i] = tile.row + min(share.first + thread + 96 * i, share.last - 1);
        if (PLACES) table[i] = given.sequences[row[i] / given.tokens];
    }
#pragma unroll
    for (int i = 0; i < PASSES; i++)
        if (PLACES) position[i] = given.lengths[table[i]] + row[i] % given.tokens;
#pragma unroll
    for (int i = 0; i < PASSES; i++)
        if (PLACES) page[i] = given.pages[(u64)table[i] * given.reach + min(position[i] / PAGE, given.reach - 1)];
#pragma unroll 8
    for (int part = 0; part < parts; part++)
#pragma unroll
        for (int i = 0; i < PASSES; i++) {
            float2 sums = *((const float2 *)given.sums + (u64)row[i] * parts + part);
            total[i] += sums.x, squares[i] += sums.y;
        }
#pragma unroll
    for (int i = 0; i < PASSES; i++) {
        float mean = total[i] / given.depth;
        float scale = rsqrtf(fmaxf(squares[i] / given.depth - mean * mean, 0.f) + given.eps);
        // Threads past the last row repeat it.
        put(ring.moments(row[i] - tile.row), make_float2(mean, scale));
        if (PLACES)
            asm volatile("st.shared.s32 [%0], %1;"
                         ::"r"(ring.slot(row[i] - tile.row)), "r"(page[i] * PAGE + position[i] % PAGE) : "memory");
    }
}

// What a thread needs at the end, asked for before the products.
struct Ready {
    uint4 residual[ADDS ? TURNS : 1];
    Eight cos[PLACES ? TURNS : 1], sin[PLACES ? TURNS : 1];
    Eight bias, totals;
    __device__ __forceinline__ Ready(const Arguments &given, const Tile &tile, const Share &share) {
        const int column = tile.column + share.column;
        const bool turns = PLACES && column < given.queries + given.keys;
        bias = Eight(given.bias + column);
        if (NORMED) totals = Eight(given.totals + column);
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            int row = tile.row + min(share.row(turn), share.last - 1);
            if (ADDS) residual[turn] = *(const uint4 *)(given.residual + (u64)row * given.columns + column);
            if (turns) {
                int from = row / given.tokens * given.cos_row + row % given.tokens * given.cos_token + column % DIM;
                cos[turn] = Eight(given.cos + from), sin[turn] = Eight(given.sin + from);
            }
        }
    }
};

__device__ __forceinline__ void multiply_tile(float (&c)[ROWS / 2], const Ring &ring, int steps, int group) {
    for (int i = 0; i < steps; i++) {
        ring.wait_full(i);
        u64 a = described_lines(ring.weight(i) + group * 64 * LINE), b = described_lines(ring.x(i));
        begin_products();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) multiply(c, a + 2 * k, b + 2 * k, i + k > 0);
        commit_products();
        finish_products<1>();
        if (i > 0 && threadIdx.x % 32 == 0) barrier_arrive(ring.free(i - 1));
    }
    finish_products<0>();
}

// ── the parts of K ──

// Bytes that the inbox of a part's block receives.
__device__ __forceinline__ u32 awaited(int part) {
    return (SPLIT - 1) * max(0, min(SHARED_BANDS, BANDS - part * SHARED_BANDS)) * BAND_BYTES;
}
// This part's sums of the other shares to their blocks.
__device__ __forceinline__ void send_parts(const float (&c)[ROWS / 2], const Ring &ring, int part, int thread) {
    u32 inbox[SPLIT], landed[SPLIT];
#pragma unroll
    for (int to = 0; to < SPLIT; to++) {
        inbox[to] = of_block(ring.inbox(part - (part > to)) + thread * 16, to);
        landed[to] = of_block(ring.landed(), to);
    }
#pragma unroll
    for (int band = 0; band < SHARED_BANDS; band++)
#pragma unroll
        for (int to = 0; to < SPLIT; to++) {
            const int i = 4 * (to * SHARED_BANDS + band);
            if (to != part && i < ROWS / 2)
                send(inbox[to] + band * BAND_BYTES, make_float4(c[i], c[i + 1], c[i + 2], c[i + 3]), landed[to]);
        }
}
// The block's share with all parts of K, as rows of floats where the ring was.
__device__ __forceinline__ void stage(const float (&c)[ROWS / 2], const Ring &ring, int part, int thread) {
    const int lane = thread % 32, column = thread / 32 * 16 + lane / 4, row = lane % 4 * 2;
#pragma unroll
    for (int of = 0; of < SPLIT; of++) {
        if (of != part) continue;
#pragma unroll
        for (int band = 0; band < SHARED_BANDS; band++) {
            const int i = 4 * (of * SHARED_BANDS + band);
            if (i >= ROWS / 2) continue;
            float4 sum = make_float4(c[i], c[i + 1], c[i + 2], c[i + 3]);
#pragma unroll
            for (int from = 0; from < SPLIT - 1; from++) {
                float4 other = shared_four(ring.inbox(from) + band * BAND_BYTES + thread * 16);
                sum.x += other.x, sum.y += other.y, sum.z += other.z, sum.w += other.w;
            }
            u32 at = ring.stages + 4 * ((row + 8 * band) * PITCH + column);
            put(at, sum.x);
            put(at + 4 * PITCH, sum.y);
            put(at + 4 * 8, sum.z);
            put(at + 4 * (PITCH + 8), sum.w);
        }
    }
}

// Turn eight adjacent numbers of a head, pair by pair.
__device__ __forceinline__ void turn_pairs(Eight &value, const Eight &cos, const Eight &sin) {
#pragma unroll
    for (int i = 0; i < CHUNK; i += 2) {
        float even = value.v[i], odd = value.v[i + 1];
        value.v[i] = even * cos.v[i] - odd * sin.v[i];
        value.v[i + 1] = odd * cos.v[i + 1] + even * sin.v[i + 1];
    }
}
// Where a row's numbers from `column` on go.
__device__ __forceinline__ u16 *placed(const Arguments &given, const Ring &ring, const Share &share, int turn, int row, int column) {
    if (column < given.queries) return given.out + (u64)row * given.queries + column;
    int slot, at = column - given.queries;
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(slot) : "r"(ring.slot(min(share.row(turn), ROWS - 1))) : "memory");
    u16 *to = at < given.keys ? given.k + at : given.v + at - given.keys;
    return to + (u64)slot * given.slot_row;
}

// Sums of a row over SUMMED columns, which eight adjacent threads hold as they are stored.
__device__ __forceinline__ void leave_sums(const Arguments &given, const Eight &value, int row, int column, bool here) {
    float total = 0.f, squares = 0.f;
#pragma unroll
    for (int i = 0; i < CHUNK; i++) total += value.v[i], squares += value.v[i] * value.v[i];
#pragma unroll
    for (int by = 1; by < SUMMED / CHUNK; by <<= 1) {
        total += __shfl_xor_sync(~0u, total, by);
        squares += __shfl_xor_sync(~0u, squares, by);
    }
    if (here && column % SUMMED == 0)
        *((float2 *)given.next_sums + ((u64)row * given.columns + column) / SUMMED) = make_float2(total, squares);
}

__device__ __forceinline__ void finish(const Arguments &given, const Tile &tile, const Ring &ring, const Share &share, const Ready &ready) {
    const int column = tile.column + share.column;
    const bool turns = PLACES && column < given.queries + given.keys;
    const u32 staged = ring.stages + 4 * share.column;
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        const u32 at = staged + 4 * PITCH * min(share.row(turn) - share.first, SHARE - 1);
        Eight value(shared_four(at), shared_four(at + 16));
        const int row = tile.row + share.row(turn);
        const bool here = share.has(turn);
        if (NORMED) {
            float2 moments = shared_two(ring.moments(min(share.row(turn), ROWS - 1)));
#pragma unroll
            for (int i = 0; i < CHUNK; i++) value.v[i] = (value.v[i] - moments.x * ready.totals.v[i]) * moments.y;
        }
        value.add(ready.bias);
        if (GELU)
#pragma unroll
            for (int i = 0; i < CHUNK; i++) value.v[i] = gelu(value.v[i]);
        if (turns) turn_pairs(value, ready.cos[turn], ready.sin[turn]);
        if (ADDS) value.add(Eight(ready.residual[turn]));
        uint4 stored = value.rounded();
        if (here) {
            u16 *to = PLACES ? placed(given, ring, share, turn, row, column) : given.out + (u64)row * given.columns + column;
            *(uint4 *)to = stored;
        }
        if (ADDS) leave_sums(given, Eight(stored), row, column, here);
    }
}

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(THREADS, 1)
    fitted_product(const __grid_constant__ Arguments given) {
    extern __shared__ u8 shared[];
    const Ring ring{(shared_address(shared) + 1023) & ~1023u};
    const Tile tile(given);
    const Share share(given, tile);
    const int thread = threadIdx.x, steps = given.depth / DEPTH / SPLIT;
    const bool multiplies = thread < MULTIPLIERS;
    float c[ROWS / 2];
    let_next_launch_begin();
    if (thread == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(ring.full(i), 1);
            barrier_init(ring.free(i), MULTIPLIERS / 32);
        }
        if (SPLIT > 1) barrier_init(ring.landed(), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        if (SPLIT > 1) barrier_expect(ring.landed(), awaited(tile.part));
    }
    __syncthreads();
    if (SPLIT > 1) cluster_arrives();
    const Producer producer{given, tile, ring, steps};
    if (thread == PRODUCER) producer.first_weights();
    wait_for_launch_before();
    if (thread == PRODUCER) producer.first_x();
    const Ready ready(given, tile, share);
    if (multiplies) multiply_tile(c, ring, steps, thread / 128);
    else if (thread == PRODUCER) producer.others();
    else if (NORMED && thread < PRODUCER) read_tables(given, tile, ring, share, thread - MULTIPLIERS);
    if (SPLIT > 1) cluster_began();
    if (SPLIT > 1 && multiplies) send_parts(c, ring, tile.part, thread);
    __syncthreads();
    if (SPLIT > 1 && multiplies) wait_for_sent(ring.landed());
    if (multiplies) stage(c, ring, tile.part, thread);
    __syncthreads();
    if (thread < FINISHERS) finish(given, tile, ring, share, ready);
}
