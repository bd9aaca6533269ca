// Attention of blocks of up to 264 tokens over a paged cache, one launch: heads of 64 numbers, pages of 16 slots.
//
// A cluster attends one sequence's head; each of its blocks has all queries and a share of the keys, so keys and values
// leave memory once. Shares are combined in a fixed order through distributed shared memory, where every block writes
// its part of the rows. A share depends on the length on the device: a captured launch serves every length.
//
// Warpgroups have 64 queries each. Up to 8 queries past the last whole 64 would fill an eighth of a warpgroup; three more
// warps attend them, by turns, block by block: their scores are computed transposed, keys x queries. One warp copies keys
// and values into a ring of shared memory, page by page.
//
// Warpgroups multiply in turns; the others raise scores to powers meanwhile. A result is scaled down only if its maximum
// grew by more than RISE, in powers of 2: float32 has room for that.
//
// Given by the compiler's options: GROUPS (warpgroups), FEW (1: queries past them), SPLIT (blocks of a cluster), STAGES.
//
// Shape letters: B sequences, n tokens of a block, H query heads, G key/value heads, D = 64.

#include "common.cuh"
#include "hopper.cuh"

constexpr int DIM = 64, LINE = 2 * DIM, PAGE = 16, PAGE_BYTES = PAGE * LINE;
constexpr int KEYS = 64, PAGES = KEYS / PAGE;      // of a stage
constexpr int SIDE_BYTES = KEYS * LINE, STAGE_BYTES = 2 * SIDE_BYTES;
constexpr int WHOLE = 64 * GROUPS, MULTIPLIERS = 128 * GROUPS;
constexpr int OTHERS = FEW ? 3 : 0, ROWS = WHOLE + 8 * OTHERS, THREADS = MULTIPLIERS + 128;
constexpr int PITCH = DIM + 8;                     // floats of a staged row: off its neighbours' banks
constexpr int STAGED_BYTES = ROWS * PITCH * 4;
constexpr int QUERY_BYTES = GROUPS * 64 * LINE;
constexpr int COPIED_BYTES = QUERY_BYTES + STAGES * STAGE_BYTES;
constexpr int ALL_BYTES = COPIED_BYTES > STAGED_BYTES ? COPIED_BYTES : STAGED_BYTES;
constexpr float RISE = 8.f;
constexpr float LOWEST = -1e30f, NOTHING = -2e38f;  // of no key; of a key past the end

struct Arguments {
    TensorMap k;           // [slots, G * D]; `v` likewise
    TensorMap v;
    const u16 *q;          // [B * n, H, D]
    u16 *out;              // [B * n, H, D]
    const int *sequences;  // [B]: rows of the tables
    const int *pages;      // [tables, `reach`]
    const int *lengths;    // [tables]
    int tokens, reach, heads, shared;  // shared: query heads that share keys
    float scale;           // of scores as powers of 2
};

// ── products ──

// c [64, 64] (+)= a [64, 16] @ b [16, 64], from shared memory: lines of a are its rows, and lines of b its columns.
#define SUMS(c) \
    "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), \
        "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), \
        "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), \
        "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
#define PRODUCT \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
__device__ __forceinline__ void multiply(float (&c)[32], u64 a, u64 b, bool add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n" PRODUCT "%32, %33, p, 1, 1, 0, 0;\n}"
                 : SUMS(c) : "l"(a), "l"(b), "r"((int)add));
}
// As before; a from registers, and lines of b are its rows.
__device__ __forceinline__ void multiply(float (&c)[32], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, bool add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n" PRODUCT "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"
                 : SUMS(c) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"((int)add));
}
// ── the block's parts ──

struct Ring {
    u32 start;
    __device__ __forceinline__ u32 q(int group) const { return start + group * 64 * LINE; }
    __device__ __forceinline__ u32 k(int i) const { return start + QUERY_BYTES + i % STAGES * STAGE_BYTES; }
    __device__ __forceinline__ u32 v(int i) const { return k(i) + SIDE_BYTES; }
    __device__ __forceinline__ u32 full(int i) const { return start + ALL_BYTES + i % STAGES * 8; }
    __device__ __forceinline__ u32 free(int i) const { return full(i) + STAGES * 8; }
    __device__ __forceinline__ u32 arrived() const { return start + ALL_BYTES + STAGES * 16; }  // a cut block's copies
    __device__ __forceinline__ u32 used() const { return arrived() + 8; }                         // blocks with keys
    // After the keys: unscaled results and, per row, the maximum and the sum of weights.
    __device__ __forceinline__ u32 staged(int row, int column) const { return start + 4 * (row * PITCH + column); }
    __device__ __forceinline__ u32 sums(int row) const { return staged(row, DIM); }
    __device__ __forceinline__ void wait_full(int i) const { barrier_wait(full(i), i / STAGES & 1); }
    __device__ __forceinline__ void wait_free(int i) const { barrier_wait(free(i), (i / STAGES & 1) ^ 1); }
};
struct Place {
    int part, sequence, head;
    u64 from;  // of queries and results
    __device__ __forceinline__ explicit Place(const Arguments &given) {
        u32 block;  // read again where it is needed: a register for it is lost to the products
        asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
        part = block % SPLIT, sequence = block / SPLIT / given.heads, head = block / SPLIT % given.heads;
        from = ((u64)sequence * given.tokens * given.heads + head) * DIM;
    }
};
struct Share {
    const int *table;  // pages of the sequence
    int pages, used;   // pages with tokens; blocks of the cluster that have keys
    int begin, count;  // blocks of keys
    int left;          // keys of the share's last block
    __device__ __forceinline__ Share(const Arguments &given, const Place &place) {
        int part = place.part, row = __ldg(given.sequences + place.sequence);
        int most = min(__ldg(given.lengths + row) + given.tokens, given.reach * PAGE);
        table = given.pages + (u64)row * given.reach, pages = (most + PAGE - 1) / PAGE;
        int all = (most + KEYS - 1) / KEYS, end = 0;
        used = min(all, SPLIT), begin = 0;
        if (part < used) begin = part * all / used, end = (part + 1) * all / used;
        count = __shfl_sync(~0u, end - begin, 0), left = end == all ? most - (all - 1) * KEYS : KEYS;
    }
};

// The warp that copies keys and values.
struct Copies {
    const Arguments &given;
    const Share &share;
    const Ring &ring;
    static constexpr int BATCH = 32 / PAGES;  // blocks whose page numbers the lanes hold
    int head, lane, now, next;                // page numbers of a batch, and of the next
    __device__ __forceinline__ int number(int from) const {
        return __ldg(share.table + min(share.begin * PAGES + from + lane, share.pages - 1));
    }
    __device__ __forceinline__ Copies(const Arguments &given, const Share &share, const Ring &ring, int head, int lane)
        : given(given), share(share), ring(ring), head(head), lane(lane), now(0), next(number(0)) {}
    __device__ __forceinline__ bool is_cut(int i) const { return i == share.count - 1 && share.left < KEYS; }
    // Called for every block in turn.
    __device__ __forceinline__ void fill(int i) {
        if (i % BATCH == 0) now = next, next = number((i + BATCH) * PAGES);
        int here = min(PAGES, share.pages - (share.begin + i) * PAGES), at = lane % PAGES;
        u32 barrier = is_cut(i) ? ring.arrived() : ring.full(i);
        if (lane == 0) barrier_expect(barrier, 2 * PAGE_BYTES * here);
        int page = __shfl_sync(~0u, now, i % BATCH * PAGES + at);
        if (lane < 2 * PAGES && at < here)
            copy_tile((lane < PAGES ? ring.k(i) : ring.v(i)) + at * PAGE_BYTES, lane < PAGES ? &given.k : &given.v,
                      head * DIM, page * PAGE, barrier);
        __syncwarp();
    }
    // Values past the end hold leftovers, possibly NaN; their weight is 0.
    __device__ __forceinline__ void clear(int i) const {
        barrier_wait(ring.arrived(), 0);
        for (int at = share.left * LINE + lane * 16; at < SIDE_BYTES; at += 32 * 16)
            asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(ring.v(i) + at), "r"(0) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane == 0) barrier_arrive(ring.full(i));
    }
};

// Warpgroups multiply in turns: in step, all would use the tensor cores at the same time, and leave them idle after.
__device__ __forceinline__ void take_turn(int group) {
    if (GROUPS > 1) asm volatile("bar.sync %0, 256;" ::"r"(6 + group) : "memory");
}
__device__ __forceinline__ void pass_turn(int group) {
    if (GROUPS > 1) asm volatile("bar.arrive %0, 256;" ::"r"(6 + group) : "memory");
}

__device__ __forceinline__ void copy_keys(
    const Arguments &given, const Share &share, const Ring &ring, int head, int lane) {
    Copies copies(given, share, ring, head, lane);
    for (int i = 0; i < share.count; i++) {
        if (i >= STAGES) ring.wait_free(i);
        copies.fill(i);
    }
    if (share.left < KEYS) copies.clear(share.count - 1);
}

// ── 64 queries of a warpgroup ──

struct Many {
    u32 weights[KEYS / 4];
    float scores[KEYS / 2], heard[32];
    float best[2], total[2];  // of the rows `lane / 4` and 8 after it; total: this thread's columns

    // Queries into shared memory.
    __device__ __forceinline__ void read(const u16 *from, u32 to, int end, int stride) {
        constexpr int CHUNKS = DIM / 8, TURNS = 64 * CHUNKS / 128;
        int thread = threadIdx.x % 128, group = threadIdx.x / 128;
        uint4 value[TURNS];
#pragma unroll
        for (int i = 0; i < TURNS; i++) {
            int row = 64 * group + (i * 128 + thread) / CHUNKS;
            value[i] = make_uint4(0, 0, 0, 0);
            if (row < end) value[i] = *(const uint4 *)(from + (u64)row * stride + thread % CHUNKS * 8);
        }
#pragma unroll
        for (int i = 0; i < TURNS; i++) {
            int row = (i * 128 + thread) / CHUNKS;
            asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                         ::"r"(to + row * LINE + ((thread % CHUNKS ^ row % 8) << 4)),
                           "r"(value[i].x), "r"(value[i].y), "r"(value[i].z), "r"(value[i].w) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;\nbar.sync %0, 128;" ::"r"(2 + group) : "memory");
    }
    __device__ __forceinline__ void multiply_keys(u32 q, u32 k) {
        u64 a = described_lines(q), b = described_lines(k);
        begin_products();
#pragma unroll
        for (int i = 0; i < DIM / 16; i++) multiply(scores, a + 2 * i, b + 2 * i, i > 0);
        commit_products();
    }
    __device__ __forceinline__ void multiply_values(u32 v) {
        u64 b = described_lines(v);
        begin_products();
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++)
            multiply(heard, weights[4 * i], weights[4 * i + 1], weights[4 * i + 2], weights[4 * i + 3],
                     b + (u64)(PAGE_BYTES >> 4) * i, true);
        commit_products();
    }
    __device__ __forceinline__ void mask(int left, int lane) {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++)
            if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= left) scores[i] = NOTHING;
    }
    // Scores to weights, in place -> whether the result is scaled, by `keep`.
    __device__ __forceinline__ bool weigh(float scale, float (&keep)[2]) {
        float top[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a = scores[2 * r], b = scores[2 * r + 1];
#pragma unroll
            for (int i = 4; i < KEYS / 2; i += 4) a = fmaxf(a, scores[i + 2 * r]), b = fmaxf(b, scores[i + 2 * r + 1]);
            a = fmaxf(a, b);
            a = fmaxf(a, __shfl_xor_sync(~0u, a, 1));
            top[r] = fmaxf(a, __shfl_xor_sync(~0u, a, 2)) * scale;
        }
        bool grown = __any_sync(~0u, top[0] > best[0] + RISE || top[1] > best[1] + RISE);
        if (grown) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float higher = fmaxf(best[r], top[r]);
                keep[r] = power(best[r] - higher);
                total[r] *= keep[r];
                best[r] = higher;
            }
        }
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) scores[i] = power(fmaf(scores[i], scale, -best[i / 2 % 2]));
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a = scores[2 * r], b = scores[2 * r + 1];
#pragma unroll
            for (int i = 4; i < KEYS / 2; i += 4) a += scores[i + 2 * r], b += scores[i + 2 * r + 1];
            total[r] += a + b;
        }
        return grown;
    }
    __device__ __forceinline__ void round_weights() {
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) weights[i] = pair(scores[2 * i], scores[2 * i + 1]);
    }
    __device__ __forceinline__ void attend(const Ring &ring, const Share &share, float scale, int group, int lane) {
        float keep[2];
        best[0] = best[1] = LOWEST, total[0] = total[1] = 0.f;
#pragma unroll
        for (int i = 0; i < 32; i++) heard[i] = 0.f;
        const int next = (group + 1) % GROUPS;
        const bool turns = share.count > 2;
        if (turns && group == GROUPS - 1) pass_turn(0);
        for (int i = 0; i < share.count; i++) {
            ring.wait_full(i);
            if (turns) take_turn(group);
            if (i > 0) {
                multiply_values(ring.v(i - 1));
                finish_products<0>();
            }
            multiply_keys(ring.q(group), ring.k(i));
            if (turns) pass_turn(next);
            if (i > 0 && lane == 0) barrier_arrive(ring.free(i - 1));
            finish_products<0>();
            if (i == share.count - 1 && share.left < KEYS) mask(share.left, lane);
            if (weigh(scale, keep)) scale_down(keep);
            round_weights();
        }
        if (turns) take_turn(group);
        multiply_values(ring.v(share.count - 1));
        if (turns && group < GROUPS - 1) pass_turn(next);
        finish_products<0>();
    }
    __device__ __forceinline__ void scale_down(const float (&keep)[2]) {
#pragma unroll
        for (int i = 0; i < 32; i++) heard[i] *= keep[i / 2 % 2];
    }
    __device__ __forceinline__ void stage(const Ring &ring, int row, int lane) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                put_two(ring.staged(row + 8 * r, 8 * i + lane % 4 * 2), heard[4 * i + 2 * r], heard[4 * i + 2 * r + 1]);
            float sum = total[r] + __shfl_xor_sync(~0u, total[r], 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            if (lane % 4 == 0) put_two(ring.sums(row + 8 * r), best[r], sum);
        }
    }
};

// ── up to 8 queries, of which each of OTHERS warps attends every third block ──

struct Few {
    static constexpr int TILES = KEYS / 16;
    u32 q[8];
    float heard[DIM / 16][4];  // dims x queries
    float best[2], total[2];   // of the queries `lane % 4 * 2` and the next; total: this thread's keys

    __device__ __forceinline__ void read(const u16 *from, int end, int stride, int lane) {
        int row = WHOLE + lane / 4;
#pragma unroll
        for (int i = 0; i < 8; i++)
            q[i] = row < end ? *(const u32 *)(from + (u64)row * stride + i * 8 + lane % 4 * 2) : 0;
#pragma unroll
        for (int i = 0; i < DIM / 16; i++) heard[i][0] = heard[i][1] = heard[i][2] = heard[i][3] = 0.f;
        best[0] = best[1] = LOWEST, total[0] = total[1] = 0.f;
    }
    __device__ __forceinline__ void attend(
        const Arguments &given, const Share &share, const Ring &ring, const u16 *from, int which, int lane) {
        read(from, given.tokens, given.heads * DIM, lane);
        for (int i = which; i < share.count; i += OTHERS) {
            ring.wait_full(i);
            int left = i == share.count - 1 ? share.left : KEYS;
            attend_keys(ring.k(i), ring.v(i), left, given.scale, lane);
            __syncwarp();
            if (lane == 0) barrier_arrive(ring.free(i));
        }
    }
    // A block's keys, of which `left` are the sequence's.
    __device__ __forceinline__ void attend_keys(u32 k, u32 v, int left, float scale, int lane) {
        float scores[TILES][4] = {};
        int key = lane % 8, half = lane / 8 % 2, other = lane / 16;  // which of the four tiles a lane has a line of
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int i = 0; i < DIM / 16; i++) {
                u32 a[4];
                load_tiles<false>(a, k + (16 * t + 8 * half + key) * LINE + ((2 * i + other ^ key) << 4));
                multiply(scores[t], a[0], a[1], a[2], a[3], q[2 * i], q[2 * i + 1]);
            }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float top = NOTHING;
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int j = r; j < 4; j += 2) {
                    if (left < KEYS && 16 * t + j / 2 * 8 + lane / 4 >= left) scores[t][j] = NOTHING;
                    top = fmaxf(top, scores[t][j]);
                }
#pragma unroll
            for (int by = 4; by < 32; by <<= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, by));
            float higher = fmaxf(best[r], top * scale), keep = power(best[r] - higher);
            best[r] = higher, total[r] *= keep;
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int j = r; j < 4; j += 2) {
                    scores[t][j] = power(fmaf(scores[t][j], scale, -higher));
                    total[r] += scores[t][j];
                }
#pragma unroll
            for (int i = 0; i < DIM / 16; i++) heard[i][r] *= keep, heard[i][r + 2] *= keep;
        }
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            u32 b0 = transposed(pair(scores[t][0], scores[t][1])), b1 = transposed(pair(scores[t][2], scores[t][3]));
#pragma unroll
            for (int i = 0; i < DIM / 16; i++) {
                u32 a[4];
                load_tiles<true>(a, v + (16 * t + 8 * other + key) * LINE + ((2 * i + half ^ key) << 4));
                multiply(heard[i], a[0], a[1], a[2], a[3], b0, b1);
            }
        }
    }
    // The warps' parts; the first warp adds those of the others.
    __device__ __forceinline__ void stage(const Ring &ring, int which, int lane) {
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int by = 4; by < 32; by <<= 1) total[r] += __shfl_xor_sync(~0u, total[r], by);
        int row = WHOLE + lane % 4 * 2, column = lane / 4;
        if (which > 0) put(ring, row + 8 * which, column);
        asm volatile("bar.sync 1, %0;" ::"n"(32 * OTHERS) : "memory");
        if (which > 0) return;
        for (int other = 1; other < OTHERS; other++) add(ring, row + 8 * other, column);
        put(ring, row, column);
    }
    __device__ __forceinline__ void put(const Ring &ring, int row, int column) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
#pragma unroll
            for (int i = 0; i < DIM / 8; i++)
                asm volatile("st.shared.f32 [%0], %1;"
                             ::"r"(ring.staged(row + r, column + 8 * i)), "f"(heard[i / 2][i % 2 * 2 + r]) : "memory");
            if (column == 0) put_two(ring.sums(row + r), best[r], total[r]);
        }
    }
    __device__ __forceinline__ void add(const Ring &ring, int row, int column) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float2 sums;
            asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                         : "=f"(sums.x), "=f"(sums.y) : "r"(ring.sums(row + r)) : "memory");
            float higher = fmaxf(best[r], sums.x), mine = power(best[r] - higher), theirs = power(sums.x - higher);
            best[r] = higher, total[r] = total[r] * mine + sums.y * theirs;
#pragma unroll
            for (int i = 0; i < DIM / 8; i++) {
                float value, &sum = heard[i / 2][i % 2 * 2 + r];
                asm volatile("ld.shared.f32 %0, [%1];"
                             : "=f"(value) : "r"(ring.staged(row + r, column + 8 * i)) : "memory");
                sum = sum * mine + value * theirs;
            }
        }
    }
};

__device__ __forceinline__ u32 of_share(u32 at, int block) { return SPLIT > 1 ? of_block(at, block) : at; }

// This block's part of the rows, from all shares.
__device__ __forceinline__ void combine(const Arguments &given, const Ring &ring) {
    constexpr int CHUNKS = DIM / 4;
    const Place place(given);
    const int part = place.part, stride = given.heads * DIM;
    u16 *out = given.out + place.from;
    int used;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(used) : "r"(ring.used()) : "memory");
    const int each = (given.tokens + SPLIT - 1) / SPLIT, end = min((part + 1) * each, given.tokens);
    for (int at = threadIdx.x; at < each * CHUNKS; at += THREADS) {
        int row = part * each + at / CHUNKS, column = at % CHUNKS * 4;
        if (row >= end) break;
        float2 sums[SPLIT];
        float4 heard[SPLIT];
#pragma unroll
        for (int i = 0; i < SPLIT; i++) {
            sums[i] = make_float2(LOWEST, 0.f), heard[i] = make_float4(0.f, 0.f, 0.f, 0.f);
            if (i >= used) continue;
            sums[i] = shared_two<(SPLIT > 1)>(of_share(ring.sums(row), i));
            heard[i] = shared_four<(SPLIT > 1)>(of_share(ring.staged(row, column), i));
        }
        float best = LOWEST, total = 0.f, x = 0.f, y = 0.f, z = 0.f, w = 0.f;
#pragma unroll
        for (int i = 0; i < SPLIT; i++) best = fmaxf(best, sums[i].x);
#pragma unroll
        for (int i = 0; i < SPLIT; i++) {
            float weight = power(sums[i].x - best);
            total += weight * sums[i].y;
            x += weight * heard[i].x, y += weight * heard[i].y, z += weight * heard[i].z, w += weight * heard[i].w;
        }
        float by = 1.f / total;
        *(uint2 *)(out + (u64)row * stride + column) = make_uint2(pair(x * by, y * by), pair(z * by, w * by));
    }
}

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(THREADS, 1)
    block_attention(const __grid_constant__ Arguments given) {
    extern __shared__ u8 shared[];
    const Ring ring{(shared_address(shared) + 1023) & ~1023u};
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const Place place(given);
    let_next_launch_begin();
    if (threadIdx.x == 32) {
        asm volatile("prefetch.tensormap [%0];" ::"l"(&given.k) : "memory");
        asm volatile("prefetch.tensormap [%0];" ::"l"(&given.v) : "memory");
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(ring.full(i), 1);
            barrier_init(ring.free(i), MULTIPLIERS / 32 + FEW);
        }
        barrier_init(ring.arrived(), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    const Share share(given, place);
    if (threadIdx.x == 0) asm volatile("st.shared.u32 [%0], %1;" ::"r"(ring.used()), "r"(share.used) : "memory");
    __syncthreads();
    if (warp < MULTIPLIERS / 32) {
        Many many;
        if (share.count > 0) {
            wait_for_launch_before();
            many.read(given.q + place.from, ring.q(warp / 4), given.tokens, given.heads * DIM);
            many.attend(ring, share, given.scale, warp / 4, lane);
        }
        __syncthreads();
        if (share.count > 0) many.stage(ring, warp * 16 + lane / 4, lane);
    } else {
        const int which = warp - MULTIPLIERS / 32;
        Few few;
        if (share.count > 0) {
            wait_for_launch_before();
            if (which == 3) copy_keys(given, share, ring, place.head / given.shared, lane);
            else if (FEW) few.attend(given, share, ring, given.q + place.from, which, lane);
        }
        __syncthreads();
        if (FEW && share.count > 0 && which < OTHERS) few.stage(ring, which, lane);
    }
    if (SPLIT > 1) cluster_meets();
    else __syncthreads();
    wait_for_launch_before();
    combine(given, ring);
    if (SPLIT > 1) cluster_parts();
}
