// Attention of runs whose query heads share one head of keys and values, of 256 numbers, one launch.
//
// All heads of a row attend the same keys, so they are rows of their own, called folded rows. A cluster has 128 of one
// run's, and each of its blocks attends a part of the run's keys. In the end every block finishes some of the columns: it
// gets the other blocks' shares of them, rounded to halves, and combines them in a fixed order.
//
// Two warpgroups have 64 of the rows each, and multiply in turns; the other raises scores to powers meanwhile. One warp
// copies keys and values into a ring of shared memory: from pages that may lie anywhere, or, if DENSE, from a row of slots.
// A page is one copy; its tile has all columns of 8 keys before those of the next 8.
//
// Which run a cluster serves depends on bounds on the device: a captured launch serves runs of any lengths. Clusters past
// the last row of the last run do nothing.
//
// Given by the compiler's options: SPLIT (blocks of a cluster: 2, 3, 4 or 8), DENSE.
//
// Shape letters: M runs, R rows, H query heads, S slots, D = 256.

#include "common.cuh"
#include "hopper.cuh"

constexpr int DIM = 256, COLUMNS = 64, CHUNKS = DIM / COLUMNS;       // COLUMNS: of a line of 128 bytes
constexpr int LINE = 2 * COLUMNS, EIGHT = 8 * LINE, BRICK = 8 * EIGHT;  // EIGHT rows or keys; a chunk of 64
constexpr int TILE = 64, ROWS = 2 * TILE;                            // rows of a warpgroup, of a cluster
constexpr int KEYS = 64, PAGE = 16, PAGES = KEYS / PAGE;             // of a stage
constexpr int BY_CHUNK = DENSE ? BRICK : EIGHT, BY_EIGHT = DENSE ? EIGHT : CHUNKS * EIGHT;  // bytes in a stage
constexpr int QUERY_BYTES = 2 * CHUNKS * BRICK, STAGE_BYTES = CHUNKS * BRICK, STAGES = 5;
constexpr int WARPS = 8, MULTIPLIERS = 32 * WARPS, THREADS = MULTIPLIERS + 128;
constexpr int OWN = (DIM / 16 + SPLIT - 1) / SPLIT * 16, MINE = OWN / 2;  // columns that a block finishes; a thread's numbers
constexpr int PART_BYTES = 32 * MINE * 2, SUMS_BYTES = 8 * 16;       // of a warp, as its registers have them
constexpr int INBOX_BYTES = (SPLIT - 1) * WARPS * (PART_BYTES + SUMS_BYTES);
constexpr int ALL_BYTES = QUERY_BYTES + STAGES * STAGE_BYTES;
constexpr float LOWEST = -1e30f, NOTHING = -2e38f;                   // of no key; of a key past the end
static_assert(INBOX_BYTES <= QUERY_BYTES, "the inbox lies where the queries were");

struct Arguments {
    TensorMap q;           // [R * H, D]
    TensorMap k;           // [S / 8, D / 64, 8, 64], DENSE [S, D]; `v` likewise
    TensorMap v;
    u16 *out;              // [R * H, D]
    const int *rows;       // [M + 1]: the first row of each run, and the end of the last one's
    const int *keys;       // where a run's begin and end, `step` for each run: DENSE in slots, else in rows
    const long long *slots;  // of each row, unless DENSE; each 16 rows of a run are the slots of a page
    int runs, heads, step;
    float scale;           // of scores as powers of 2
};

// ── products ──

#define SIXTEEN(c, i) \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
        "+f"(c[i + 7]), "+f"(c[i + 8]), "+f"(c[i + 9]), "+f"(c[i + 10]), "+f"(c[i + 11]), "+f"(c[i + 12]), \
        "+f"(c[i + 13]), "+f"(c[i + 14]), "+f"(c[i + 15])
#define SCORES_PRODUCT \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
// c [64, 64] (+)= a [64, 16] @ b [16, 64]: lines of a are its rows, and lines of b its columns.
__device__ __forceinline__ void multiply(float (&c)[32], u64 a, u64 b, bool add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n" SCORES_PRODUCT "%32, %33, p, 1, 1, 0, 0;\n}"
                 : SIXTEEN(c, 0), SIXTEEN(c, 16) : "l"(a), "l"(b), "r"((int)add));
}
// c [64, 256] += a [64, 16] @ b [16, 256]: a in registers, and lines of b are a chunk of its rows.
__device__ __forceinline__ void multiply_wide(float (&c)[128], u32 a0, u32 a1, u32 a2, u32 a3, u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "{%128, %129, %130, %131}, %132, 1, 1, 1, 1;"
        : SIXTEEN(c, 0), SIXTEEN(c, 16), SIXTEEN(c, 32), SIXTEEN(c, 48), SIXTEEN(c, 64), SIXTEEN(c, 80), SIXTEEN(c, 96),
          SIXTEEN(c, 112)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}
// A side in a stage: keys, whose lines are columns of b; values, whose lines are a chunk of its rows.
__device__ __forceinline__ u64 described_stage(u32 at) {
    return (u64)((at & 0x3ffff) >> 4) | (u64)(BY_CHUNK >> 4) << 16 | (u64)(BY_EIGHT >> 4) << 32 | 1ull << 62;
}

// ── the block's parts ──

struct Ring {
    u32 start;
    __device__ __forceinline__ u32 q(int group) const { return start + group * CHUNKS * BRICK; }
    __device__ __forceinline__ u32 at(int stage) const { return start + QUERY_BYTES + stage * STAGE_BYTES; }
    __device__ __forceinline__ u32 full(int stage) const { return start + ALL_BYTES + stage * 8; }
    __device__ __forceinline__ u32 free(int stage) const { return full(STAGES + stage); }
    __device__ __forceinline__ u32 asked(int group) const { return full(2 * STAGES + group); }  // the queries are there
    __device__ __forceinline__ u32 arrived() const { return full(2 * STAGES + 2); }  // the last values, if they are cut
    __device__ __forceinline__ u32 landed() const { return full(2 * STAGES + 3); }   // the other blocks' shares
    // Shares of other blocks, where the queries were: unscaled results; and by row their maximum and sum of weights.
    __device__ __forceinline__ u32 inbox(int of, int warp) const { return start + (of * WARPS + warp) * PART_BYTES; }
    __device__ __forceinline__ u32 sums(int of, int warp) const { return inbox(SPLIT - 1, 0) + (of * WARPS + warp) * SUMS_BYTES; }
};
struct Place {
    int stage = 0;
    u32 parity = 0;
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

// What the cluster serves: called by whole warps.
struct Share {
    int row, rows;         // the first folded row, and how many there are to the end of the run
    int from, keys;        // the run's
    int begin, count;      // tiles of them that the block attends
    int left;              // keys of its last tile
    __device__ __forceinline__ Share(const Arguments &given, int lane) {
        const int run = min(lane, given.runs - 1), cluster = blockIdx.x / SPLIT, part = blockIdx.x % SPLIT;
        const int first = __ldg(given.rows + run) * given.heads, end = __ldg(given.rows + run + 1) * given.heads;
        const int start = __ldg(given.keys + run * given.step), stop = __ldg(given.keys + run * given.step + 1);
        const int tiles = lane < given.runs ? (end - first + ROWS - 1) / ROWS : 0;
        int through = tiles;
#pragma unroll
        for (int by = 1; by < 32; by *= 2) {
            int other = __shfl_up_sync(~0u, through, by);
            if (lane >= by) through += other;
        }
        const int mine = __popc(__ballot_sync(~0u, through <= cluster)), at = min(mine, 31);
        row = __shfl_sync(~0u, first, at) + (cluster - __shfl_sync(~0u, through - tiles, at)) * ROWS;
        rows = mine < 32 ? __shfl_sync(~0u, end, at) - row : 0;
        from = __shfl_sync(~0u, start, at), keys = __shfl_sync(~0u, stop, at) - from;
        const int all = (keys + KEYS - 1) / KEYS, next = (part + 1) * all / SPLIT;
        begin = part * all / SPLIT, count = next - begin, left = next == all ? keys - (all - 1) * KEYS : KEYS;
    }
};

// The warp that copies queries, keys and values.
struct Copies {
    const Arguments &given;
    const Share &share;
    const Ring &ring;
    int lane;
    Place place;
    // Of the page that the lane copies, or of the whole tile.
    __device__ __forceinline__ int slot(int tile) const {
        const int key = (share.begin + tile) * KEYS;
        return DENSE ? share.from + key : (int)__ldg(given.slots + share.from + min(key + lane % PAGES * PAGE, share.keys - 1));
    }
    __device__ __forceinline__ void queries() const {
        const int group = lane / CHUNKS, chunk = lane % CHUNKS;
        if (lane < 2) barrier_expect(ring.asked(lane), CHUNKS * BRICK);
        __syncwarp();
        if (group < 2)
            copy_tile(ring.q(group) + chunk * BRICK, &given.q, chunk * COLUMNS, share.row + group * TILE, ring.asked(group));
    }
    __device__ __forceinline__ bool is_cut(int tile) const { return tile == share.count - 1 && share.left < KEYS; }
    __device__ __forceinline__ void fill(const TensorMap *map, int tile, int slot, u32 full) {
        const u32 to = ring.at(place.stage);
        const int pages = !DENSE && is_cut(tile) ? (share.left + PAGE - 1) / PAGE : PAGES;
        barrier_wait(ring.free(place.stage), place.parity ^ 1);
        if (lane == 0) barrier_expect(full, pages * PAGE * CHUNKS * LINE);
        __syncwarp();
        if (DENSE && lane < CHUNKS) copy_tile(to + lane * BRICK, map, lane * COLUMNS, slot, full);
        if (!DENSE && lane < pages) copy_tile(to + lane * (PAGE / 8) * BY_EIGHT, map, 0, 0, 0, slot / 8, full);
    }
    // Values past the end hold leftovers, possibly NaN; their weight is 0.
    __device__ __forceinline__ void clear() const {
        barrier_wait(ring.arrived(), 0);
        for (int key = share.left + lane / 8; key < KEYS; key += 4)
#pragma unroll
            for (int i = 0; i < CHUNKS; i++)
                put(ring.at(place.stage) + i * BY_CHUNK + key / 8 * BY_EIGHT + key % 8 * LINE + lane % 8 * 16,
                    make_float4(0.f, 0.f, 0.f, 0.f));
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane == 0) barrier_arrive(ring.full(place.stage));
    }
    // In the order in which warpgroups multiply: keys of a tile, then values of the tile before it.
    __device__ __forceinline__ void run() {
        int here = slot(0), before = here;
        wait_for_launch_before();
        queries();
        for (int tile = 0; tile <= share.count; tile++) {
            const int next = slot(tile + 1);
            if (tile < share.count) {
                fill(&given.k, tile, here, ring.full(place.stage));
                place.next();
            }
            if (tile > 0) {
                const bool cut = is_cut(tile - 1);
                fill(&given.v, tile - 1, before, cut ? ring.arrived() : ring.full(place.stage));
                if (cut) clear();
                place.next();
            }
            before = here, here = next;
        }
    }
};

// Bytes that a block's inbox receives: the last block may have fewer columns.
__device__ __forceinline__ u32 awaited(int part) {
    return (SPLIT - 1) * WARPS * (min(OWN, DIM - part * OWN) * 32 + SUMS_BYTES);
}

// ── 64 rows of a warpgroup ──

// In step, both would use the tensor cores at the same time, and leave them idle after.
__device__ __forceinline__ void take_turn(int group) { asm volatile("bar.sync %0, 256;" ::"r"(2 + group) : "memory"); }
__device__ __forceinline__ void pass_turn(int group) { asm volatile("bar.arrive %0, 256;" ::"r"(3 - group) : "memory"); }

__device__ __forceinline__ u32 halves(float a, float b) {
    u32 out;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(b), "f"(a));
    return out;
}
__device__ __forceinline__ float2 floats(u32 halves) {
    float2 out;
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.f32.f16 %0, l;\ncvt.f32.f16 %1, h;\n}" : "=f"(out.x), "=f"(out.y) : "r"(halves));
    return out;
}

struct Heads {
    float heard[DIM / 2], scores[KEYS / 2];
    u32 weights[KEYS / 4];
    float best[2], total[2];  // of the rows `lane / 4` and 8 after it; total: this thread's columns
    float keep[2];            // by which the result is to be scaled

    __device__ __forceinline__ void multiply_keys(u32 q, u32 k) {
        begin_products();
#pragma unroll
        for (int i = 0; i < DIM / 16; i++)
            multiply(scores, described_lines(q) + i / 4 * (BRICK >> 4) + i % 4 * 2,
                     described_stage(k) + i / 4 * (BY_CHUNK >> 4) + i % 4 * 2, i > 0);
        commit_products();
    }
    __device__ __forceinline__ void multiply_values(u32 v) {
        begin_products();
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++)
            multiply_wide(heard, weights[4 * i], weights[4 * i + 1], weights[4 * i + 2], weights[4 * i + 3],
                          described_stage(v) + i * (2 * BY_EIGHT >> 4));
        commit_products();
    }
    __device__ __forceinline__ void mask(int left, int lane) {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++)
            if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= left) scores[i] = NOTHING;
    }
    // Scores to weights, in place. The largest is 1, which is exact when it's rounded.
    __device__ __forceinline__ void weigh(float scale) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a = scores[2 * r], b = scores[2 * r + 1];
#pragma unroll
            for (int i = 4; i < KEYS / 2; i += 4) a = fmaxf(a, scores[i + 2 * r]), b = fmaxf(b, scores[i + 2 * r + 1]);
            a = fmaxf(a, b);
            a = fmaxf(a, __shfl_xor_sync(~0u, a, 1));
            const float higher = fmaxf(best[r], fmaxf(a, __shfl_xor_sync(~0u, a, 2)) * scale);
            keep[r] = power(best[r] - higher), best[r] = higher;
        }
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) scores[i] = power(fmaf(scores[i], scale, -best[i / 2 % 2]));
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a = scores[2 * r], b = scores[2 * r + 1];
#pragma unroll
            for (int i = 4; i < KEYS / 2; i += 4) a += scores[i + 2 * r], b += scores[i + 2 * r + 1];
            total[r] = total[r] * keep[r] + (a + b);
        }
    }
    __device__ __forceinline__ void round_weights() {
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) weights[i] = pair(scores[2 * i], scores[2 * i + 1]);
    }
    __device__ __forceinline__ void scale_by(float first, float second) {
#pragma unroll
        for (int i = 0; i < DIM / 2; i++) heard[i] *= i / 2 % 2 ? second : first;
    }
    __device__ __forceinline__ void attend(const Arguments &given, const Share &share, const Ring &ring, int group, int lane) {
        Place place;
        barrier_wait(ring.asked(group), 0);
        barrier_wait(ring.full(0), 0);
        if (group > 0) take_turn(group);
        multiply_keys(ring.q(group), ring.at(0));
        pass_turn(group);
        finish_products<0>();
        if (lane == 0) barrier_arrive(ring.free(0));
        place.next();
        if (share.count == 1 && share.left < KEYS) mask(share.left, lane);
        weigh(given.scale);
        round_weights();
        for (int i = 1; i < share.count; i++) {
            const Place keys = place;
            place.next();
            const Place values = place;
            place.next();
            barrier_wait(ring.full(keys.stage), keys.parity);
            barrier_wait(ring.full(values.stage), values.parity);
            take_turn(group);
            multiply_keys(ring.q(group), ring.at(keys.stage));
            multiply_values(ring.at(values.stage));
            pass_turn(group);
            finish_products<0>();
            if (lane == 0) barrier_arrive(ring.free(keys.stage)), barrier_arrive(ring.free(values.stage));
            if (i == share.count - 1 && share.left < KEYS) mask(share.left, lane);
            weigh(given.scale);
            scale_by(keep[0], keep[1]);
            round_weights();
        }
        cluster_arrives();  // the queries' place may become the inbox
        barrier_wait(ring.full(place.stage), place.parity);
        take_turn(group);
        multiply_values(ring.at(place.stage));
        if (group == 0) pass_turn(0);
        finish_products<0>();
    }
    __device__ __forceinline__ void sum() {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            total[r] += __shfl_xor_sync(~0u, total[r], 1);
            total[r] += __shfl_xor_sync(~0u, total[r], 2);
        }
    }
    // Its columns to every other block, as halves: scaled by a power of 2 so that they fit.
    __device__ __forceinline__ void give(const Ring &ring, int part, int warp, int lane) const {
        float fit[2], sums[4];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float most = 0.f;
#pragma unroll
            for (int i = 2 * r; i < DIM / 2; i += 4) most = fmaxf(most, fmaxf(fabsf(heard[i]), fabsf(heard[i + 1])));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
            const int exponent = min(max((int)(__float_as_uint(most) >> 23) - 126, -64), 64);
            fit[r] = __uint_as_float((127 - exponent) << 23);
            sums[2 * r] = best[r] + exponent, sums[2 * r + 1] = total[r] * fit[r];
        }
#pragma unroll
        for (int to = 0; to < SPLIT; to++) {
            if (to == part) continue;
            const int of = part - (part > to);
            const u32 landed = of_block(ring.landed(), to), inbox = of_block(ring.inbox(of, warp), to) + lane * 16;
            if (lane % 4 == 0)
                send(of_block(ring.sums(of, warp), to) + lane / 4 * 16, make_float4(sums[0], sums[1], sums[2], sums[3]), landed);
#pragma unroll
            for (int i = 0; i < MINE && to * MINE + i < DIM / 2; i += 8) {
                const float *from = heard + to * MINE + i;
                u32 v[4];
#pragma unroll
                for (int j = 0; j < 4; j++) v[j] = halves(from[2 * j] * fit[j % 2], from[2 * j + 1] * fit[j % 2]);
                send(inbox + i / 8 * 512, make_float4(__uint_as_float(v[0]), __uint_as_float(v[1]), __uint_as_float(v[2]),
                                                     __uint_as_float(v[3])), landed);
            }
        }
    }
};

// The block's columns of a warp's rows.
struct Finished {
    float x[MINE];

    __device__ __forceinline__ Finished(const Heads &heads, int part) {
#pragma unroll
        for (int of = 0; of < SPLIT; of++)
#pragma unroll
            for (int i = 0; i < MINE; i++)
                if (of == part && of * MINE + i < DIM / 2) x[i] = heads.heard[min(of * MINE + i, DIM / 2 - 1)];
    }
    // With the shares of the other blocks.
    __device__ __forceinline__ void combine(const Heads &heads, const Ring &ring, int warp, int lane) {
        float4 sums[SPLIT];
        float first = heads.best[0], second = heads.best[1];
        sums[0] = make_float4(first, heads.total[0], second, heads.total[1]);
#pragma unroll
        for (int i = 1; i < SPLIT; i++) {
            sums[i] = shared_four(ring.sums(i - 1, warp) + lane / 4 * 16);
            first = fmaxf(first, sums[i].x), second = fmaxf(second, sums[i].z);
        }
        float all_a = 0.f, all_b = 0.f;
#pragma unroll
        for (int i = 0; i < SPLIT; i++) {
            sums[i].x = power(sums[i].x - first), sums[i].z = power(sums[i].z - second);
            all_a += sums[i].x * sums[i].y, all_b += sums[i].z * sums[i].w;
        }
        all_a = __fdividef(1.f, all_a), all_b = __fdividef(1.f, all_b);
#pragma unroll
        for (int i = 0; i < MINE; i++) x[i] *= i / 2 % 2 ? sums[0].z * all_b : sums[0].x * all_a;
#pragma unroll
        for (int of = 1; of < SPLIT; of++) {
            const float by[2] = {sums[of].x * all_a, sums[of].z * all_b};
#pragma unroll
            for (int i = 0; i < MINE; i += 8) {
                const float4 v = shared_four(ring.inbox(of - 1, warp) + (i / 8 * 32 + lane) * 16);
                const float part[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float2 two = floats(__float_as_uint(part[j]));
                    x[i + 2 * j] += two.x * by[j % 2], x[i + 2 * j + 1] += two.y * by[j % 2];
                }
            }
        }
    }
    // By way of the warp's first part of the inbox, which turns fragments into lines.
    __device__ __forceinline__ void store(u16 *out, int part, int rows, u32 by, int lane) const {
        constexpr int UNITS = OWN / 8;  // of 16 bytes, in a line; lines are shifted off their neighbours' banks
        const auto at = [&](int row, int unit) { return by + (row * UNITS + (unit + (UNITS % 8 ? row / 2 : row)) % UNITS) * 16; };
        __syncwarp();
#pragma unroll
        for (int i = 0; i < MINE; i += 8)
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                         ::"r"(at(lane % 16, i / 4 + lane / 16)), "r"(pair(x[i], x[i + 1])), "r"(pair(x[i + 2], x[i + 3])),
                           "r"(pair(x[i + 4], x[i + 5])), "r"(pair(x[i + 6], x[i + 7])) : "memory");
        __syncwarp();
#pragma unroll
        for (int i = 0; i < UNITS / 2; i++) {
            const int row = (i * 32 + lane) / UNITS, unit = (i * 32 + lane) % UNITS, column = part * OWN + unit * 8;
            const float4 value = shared_four(at(row, unit));
            if (row < rows && column < DIM) *(float4 *)(out + row * DIM + column) = value;
        }
    }
};

__device__ __forceinline__ void serve(const Arguments &given, const Share &share, const Ring &ring, int warp, int lane) {
    const int part = blockIdx.x % SPLIT, row = warp * 16;
    Heads heads;
    heads.best[0] = heads.best[1] = LOWEST, heads.total[0] = heads.total[1] = 0.f;
#pragma unroll
    for (int i = 0; i < DIM / 2; i++) heads.heard[i] = 0.f;
    if (share.count > 0) heads.attend(given, share, ring, warp / 4, lane);
    else cluster_arrives();
    heads.sum();
    cluster_began();
    heads.give(ring, part, warp, lane);
    Finished finished(heads, part);
    wait_for_sent(ring.landed());
    finished.combine(heads, ring, warp, lane);
    finished.store(given.out + (u64)(share.row + row) * DIM, part, share.rows - row, ring.inbox(0, warp), lane);
}

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(THREADS, 1)
    folded_attention(const __grid_constant__ Arguments given) {
    extern __shared__ u8 shared[];
    const Ring ring{(shared_address(shared) + 1023) & ~1023u};
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    let_next_launch_begin();
    if (threadIdx.x == 0) {
        for (int i = 0; i < 3; i++) asm volatile("prefetch.tensormap [%0];" ::"l"(&given.q + i) : "memory");
        for (int i = 0; i < STAGES; i++) barrier_init(ring.full(i), 1), barrier_init(ring.free(i), WARPS);
        for (int i = 0; i < 2; i++) barrier_init(ring.asked(i), 1);
        barrier_init(ring.arrived(), 1);
        barrier_init(ring.landed(), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        barrier_expect(ring.landed(), awaited(blockIdx.x % SPLIT));
    }
    const Share share(given, lane);
    if (share.rows <= 0) return;
    __syncthreads();
    if (warp < WARPS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        serve(given, share, ring, warp, lane);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (warp == WARPS && share.count > 0) Copies{given, share, ring, lane}.run();
    }
}
