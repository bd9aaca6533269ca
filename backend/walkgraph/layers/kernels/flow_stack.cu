// All layers of a flow step for one block of up to 64 rows behind a context, in one cooperative launch.
//
// Every block owns a share of each product's weights. One warp, the producer, copies them by tensor maps into a ring of
// shared memory, in the order of their use, with the keys and values of the context between them. None of these depends
// on what blocks compute, so memory stays busy while blocks wait for each other.
//
// A layer has eight phases, each of which reads what blocks have published in the one before:
//
//     heads    each block makes 16 columns of queries, keys or values (some make 32): product, norm, bias, turn
//     attend   each block attends a head's share of the keys
//     combine  each block makes 16 dims of a head from all its shares
//     out      each block multiplies one head by 64 columns' weights
//     add      each block adds these parts, of 8 rows and 64 columns, to the residual stream
//     inner    each block makes 32 columns: product, norm, bias, gelu(gate) * up
//     down     each block multiplies an eighth of these by 64 columns' weights
//     add      as before
//
// The rows are the left side of the tensor cores' products and come from registers. A thread's result of one product,
// two times two adjacent columns of two rows, is what the same thread of another block needs as its left side: rows are
// published as these *fragments*, 16 bytes a lane, and neither side rearranges them. What is published is its own flag,
// as in `decoder_stack.cu`: memory holds EMPTY until then.
//
// Even and odd layers publish in two sets of memory. In a layer, one warp, the cleaner, empties the block's part of the
// other set once all blocks' rows of the layer are there, as nobody reads older ones then. The block publishes its inner
// columns after that, so whoever goes on to the next layer finds that set empty. A launch leaves the even set empty for
// the next.
//
// Sums are added in an order that is fixed, and the stream stays in float32 in the registers of the threads that add.
// Rows are published times 1 + the next norm's scale, with sums of the stream's squares; a product's result is divided
// by the root mean square.
//
// Given by the compiler's options: WIDTH HEADS HIDDEN LAYERS.
//
// Shape letters: R rows, W width, H query heads, D = DIM, F hidden width, A numbers of an action.

#include "common.cuh"
#include "hopper.cuh"
#include "flow_memory.cuh"
#include "flow_multipliers.cuh"

struct Block : Multipliers {
    using Multipliers::Multipliers;

    // ── heads ──

    __device__ __forceinline__ void turn() const {  // cosines and sines of the block's columns
        if (group == 0)
            for (int i = 0; i < 4; i++) {
                float cos, sin, position = (float)(*given.position + 16 * warp + line() + 8 * (i / 2));
                sincosf(position * given.frequencies[blockIdx.x % 16 * 8 + 2 * pairs() + i % 2], &sin, &cos);
                put(shared.turns(i / 2 * 128 + thread()) + i % 2 * 8, make_float2(cos, sin));
            }
        together();
    }
    __device__ __forceinline__ void make_heads() {
        const int count = block + BLOCKS < NARROW ? 2 : 1;
        const u32 which = block + (group < count ? group : 0) * BLOCKS;  // that this warpgroup finishes
        const u8 *from = set + FIRST + group * (WIDTH / 32) * STEP + read;
        uint4 v[WIDTH / 32];
        ask(v, from);
#pragma unroll
        for (int i = 0; i < WIDTH / 32; i += 8) settle<8>(v, i, from);
        forget();
        const Squares sums = squares(FIRST_SQUARES);
        float c[8];
#pragma unroll 1
        for (int i = 0; i < count; i++, place.next()) {
            wait_full();
            const u64 b = described_lines(shared.at(place) + group * (2 * BRICK));
            begin_products();
#pragma unroll
            for (int k = 0; k < WIDTH / 32; k++) multiply_rows(c, v[k], b + (k / 4 * (16 * LINE) + k % 4 * 32 >> 4), k > 0);
            commit_products();
            finish_products<0>();
            release(place);
            leave_part(c, 2 * i);
        }
        const float2 by = norms(sums, FIRST_SQUARES);
        __syncwarp();
        if (lane == 0) barrier_arrive(shared.seen());
        together();
        if (group < count) {
#pragma unroll
            for (int i = 0; i < 8; i++) c[i] = 0.f;
            add_part(c, 2 * group, thread());
            add_part(c, 2 * group, thread() ^ 128);
            place_heads(c, by, which);
        }
    }
    // Two columns and their partners in the other half of a head, of two rows.
    __device__ __forceinline__ void place_heads(const float (&c)[8], float2 by, u32 which) {
        const u32 head = which / 16, step = which % 16 / 2, odd = which % 2;
        const float2 bias[2] = {numbers(HEAD_BIAS + group * 16 + 2 * pairs()), numbers(HEAD_BIAS + group * 16 + 8 + 2 * pairs())};
        u32 first[2], second[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float scale = r ? by.y : by.x;
            float2 a = make_float2(c[2 * r] * scale + bias[0].x, c[2 * r + 1] * scale + bias[0].y);
            float2 b = make_float2(c[4 + 2 * r] * scale + bias[1].x, c[5 + 2 * r] * scale + bias[1].y);
            float4 turns = shared_four(shared.turns(r * 128 + thread() % 128));  // cosine, sine
            if (head > HEADS) turns = make_float4(1.f, 0.f, 1.f, 0.f);
            first[r] = pair(a.x * turns.x - b.x * turns.y, a.y * turns.z - b.y * turns.w);
            second[r] = pair(b.x * turns.x + a.x * turns.y, b.y * turns.z + a.y * turns.w);
        }
        if (head < HEADS) {
            u8 *to = fragment(QUERIES, head * 16 + step) + odd * 8;
            publish_two(to, first[0], first[1]);
            publish_two(to + 8 * STEP, second[0], second[1]);
            return;
        }
        u8 *to = set + (head > HEADS ? NEW_VALUES : NEW_KEYS) + (16 * warp + line()) * (DIM * 2) + (which % 16 * 8 + 2 * pairs()) * 2;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            publish(to + r * 8 * (DIM * 2), first[r]);
            publish(to + r * 8 * (DIM * 2) + HALF * 2, second[r]);
        }
    }

    // ── attention ──

    // The rows' own keys and values belong to no cache: they replace what was copied from behind the context, and zeros
    // what is behind them, possibly NaN. `first`: their first line of the tile that begins at key `from`.
    __device__ __forceinline__ void replace(int first, int from) const {
        constexpr int CHUNKS = DIM / 8, TURNS = 8, LINES = MULTIPLIERS / CHUNKS;
        const int chunk = thread() % CHUNKS, begin = first + thread() / CHUNKS;
        Place stage = place;
#pragma unroll 1
        for (int side = 0; side < 2; side++, stage.next()) {
            const u8 *rows = set + (side ? NEW_VALUES : NEW_KEYS) + (from - share.context) * (DIM * 2) + chunk * 16;
            uint4 v[TURNS];
            do {
#pragma unroll
                for (int i = 0; i < TURNS; i++) {
                    const int line = begin + i * LINES;
                    v[i] = make_uint4(0, 0, 0, 0);
                    if (line < KEYS && from + line < share.all) v[i] = published(rows + line * (DIM * 2));
                }
            } while (is_missing(largest(v)));
            barrier_wait(shared.full(stage), stage.parity);
            const u32 to = shared.at(stage) + chunk / 8 * BRICK;
#pragma unroll
            for (int i = 0; i < TURNS; i++) {
                const int line = begin + i * LINES;
                if (line < KEYS)
                    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                                 ::"r"(to + line * LINE + ((chunk ^ line) % 8 << 4)), "r"(v[i].x), "r"(v[i].y), "r"(v[i].z),
                                   "r"(v[i].w) : "memory");
            }
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        together();
    }
    // Both warpgroups weigh all keys; each sums half of the values' dims.
    __device__ __forceinline__ void attend() {
        const u8 *from_q = set + (QUERIES + head() * (DIM / 16) * STEP + read);
        uint4 q[DIM / 16];
        float heard[2][32], best[2] = {LOWEST, LOWEST}, total[2] = {1e-30f, 1e-30f};
        if (share.count > 0) ask(q, from_q);
        else
#pragma unroll
            for (int i = 0; i < 32; i++) heard[0][i] = heard[1][i] = 0.f;
#pragma unroll 1
        for (int at = 0; at < share.count; at++) {
            const int from = (share.begin + at) * KEYS, left = share.all - from;
            if (from + KEYS > share.context) replace(max(share.context - from, 0), from);
            if (at == 0) settle<DIM / 16>(q, 0, from_q);
            float c[32], keep[2];
            wait_full();
            u64 b = described_lines(shared.at(place));
            begin_products();
#pragma unroll
            for (int k = 0; k < DIM / 16; k++) multiply_rows(c, q[k], b + (k / 4 * BRICK + k % 4 * 32 >> 4), k > 0);
            commit_products();
            finish_products<0>();
            release(place), place.next();
            if (left < KEYS)
#pragma unroll
                for (int i = 0; i < 32; i++)
                    if (i / 4 * 8 + (int)pairs() * 2 + i % 2 >= left) c[i] = NOTHING;
            weigh(c, best, total, keep);
            uint4 weights[KEYS / 16];
#pragma unroll
            for (int i = 0; i < KEYS / 16; i++)
                weights[i] = make_uint4(pair(c[8 * i], c[8 * i + 1]), pair(c[8 * i + 2], c[8 * i + 3]),
                                        pair(c[8 * i + 4], c[8 * i + 5]), pair(c[8 * i + 6], c[8 * i + 7]));
            if (at > 0)
#pragma unroll
                for (int i = 0; i < 32; i++) heard[0][i] *= keep[i / 2 % 2], heard[1][i] *= keep[i / 2 % 2];
            wait_full();
            b = described_lines(shared.at(place) + group * (2 * BRICK));
            begin_products();
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int k = 0; k < KEYS / 16; k++)
                    multiply_rows<true>(heard[i], weights[k], b + (i * BRICK + k * (16 * LINE) >> 4), at + k > 0);
            commit_products();
            finish_products<0>();
            release(place), place.next();
        }
        leave_share(heard, best, total);
    }
    // Scores to weights, in place; `keep`: what is left of the weights before.
    __device__ __forceinline__ void weigh(float (&c)[32], float (&best)[2], float (&total)[2], float (&keep)[2]) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float top = c[2 * r], sum = 0.f;
#pragma unroll
            for (int i = 0; i < 32; i++)
                if (i / 2 % 2 == r) top = fmaxf(top, c[i]);
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2)) * given.scale;
            const float higher = fmaxf(best[r], top);
            keep[r] = power(best[r] - higher), best[r] = higher;
#pragma unroll
            for (int i = 0; i < 32; i++)
                if (i / 2 % 2 == r) c[i] = power(fmaf(c[i], given.scale, -higher)), sum += c[i];
            total[r] = total[r] * keep[r] + sum;
        }
    }
    __device__ __forceinline__ void leave_share(const float (&heard)[2][32], const float (&best)[2], float (&total)[2]) const {
        float by[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            total[r] += __shfl_xor_sync(~0u, total[r], 1);
            total[r] += __shfl_xor_sync(~0u, total[r], 2);
            by[r] = __fdividef(1.f, total[r]);
            if (group == 0 && pairs() == 0)
                publish(set + (SCALES + ((head() * ROWS + 16 * warp + line() + 8 * r) * SPLITS + split()) * 4),
                        __float_as_uint(best[r] + __log2f(total[r])));
        }
        u8 *to = fragment(SHARES, block * 16 + group * 8);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float *c = &heard[i / 4][i % 4 * 8];
            publish_four(to + i * STEP, pair(c[0] * by[0], c[1] * by[0]), pair(c[2] * by[1], c[3] * by[1]),
                         pair(c[4] * by[0], c[5] * by[0]), pair(c[6] * by[1], c[7] * by[1]));
        }
    }
    // 16 dims of the block's head, of which each warpgroup adds half of the shares, and then has 8 dims.
    __device__ __forceinline__ void combine() const {
        constexpr int EACH_GROUP = SPLITS / 2;
        const u8 *shares = set + (SHARES + ((head() * SPLITS + group * EACH_GROUP) * 16 + split()) * STEP), *from = shares + read;
        // The weights of a row's shares: four threads, each of which has four.
        const u8 *scales = set + (SCALES + (head() * ROWS * SPLITS + thread() * 4) * 4);
        wait_for<EACH_GROUP>(shares, 16 * STEP);
        uint4 v[EACH_GROUP], s;
        do {
            s = published(scales);
#pragma unroll
            for (int i = 0; i < EACH_GROUP; i++) v[i] = published(from + i * (16 * STEP));
        } while (is_missing(max(largest(v), largest(s))));
        float w[4] = {__uint_as_float(s.x), __uint_as_float(s.y), __uint_as_float(s.z), __uint_as_float(s.w)};
        float top = fmaxf(fmaxf(w[0], w[1]), fmaxf(w[2], w[3]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = power(w[i] - top);
        float total = w[0] + w[1] + (w[2] + w[3]);
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
        const float by = __fdividef(1.f, total);
        put(shared.given(thread()), make_float4(w[0] * by, w[1] * by, w[2] * by, w[3] * by));
        together();
        float sums[8] = {};
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int i = 0; i < EACH_GROUP; i += 4) {
                const float4 weight = shared_four(shared.given((16 * warp + line() + 8 * r) * 4 + group * 2 + i / 4));
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float one = j < 2 ? (j ? weight.y : weight.x) : (j == 2 ? weight.z : weight.w);
                    const u32 first = r ? v[i + j].y : v[i + j].x, second = r ? v[i + j].w : v[i + j].z;
                    sums[2 * r] += one * low(first), sums[2 * r + 1] += one * high(first);
                    sums[4 + 2 * r] += one * low(second), sums[5 + 2 * r] += one * high(second);
                }
            }
        float kept[4], left[4];
#pragma unroll
        for (int i = 0; i < 4; i++) kept[i] = group ? sums[4 + i] : sums[i], left[i] = group ? sums[i] : sums[4 + i];
        together();
        leave_part(left);
        together();
        add_part(kept, 0, thread() ^ 128);
        publish_two(fragment(HEARD, block) + group * 8, pair(kept[0], kept[1]), pair(kept[2], kept[3]));
    }

    // ── the stream ──

    // The block's part of K of rows @ its 64 columns, of which each warpgroup leaves half.
    template <int STEPS> __device__ __forceinline__ void leave_sums(int at, int to) {
        uint4 v[STEPS];
        float c[32], kept[16];
        const u8 *from = set + (at + (2 * part() + group) * (STEPS * STEP) + read);
        ask(v, from);
        multiply_tile(c, v, from);
        halve<4>(kept, c);
        u8 *sums = set + (to + (block * ROWS + 16 * warp + line()) * (TILE * 4) + (group * 32 + 2 * pairs()) * 4);
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                publish_two(sums + r * 8 * (TILE * 4) + i * 32, __float_as_uint(kept[4 * i + 2 * r]),
                            __float_as_uint(kept[4 * i + 2 * r + 1]));
    }
    // A warp has one row, a lane two columns.
    __device__ __forceinline__ int row() const { return 8 * part() + 4 * group + warp; }
    __device__ __forceinline__ int column() const { return TILE * tile() + 2 * lane; }
    __device__ __forceinline__ void add(int from, int gates) {
        const u8 *parts = set + (from + (tile() * (PARTS * ROWS) + row()) * (TILE * 4)), *at = parts + lane * 8;
        uint2 v[PARTS];
        wait_for<PARTS>(parts, ROWS * TILE * 4);
        do {
#pragma unroll
            for (int i = 0; i < PARTS; i++) v[i] = published_two(at + i * (ROWS * TILE * 4));
        } while (is_missing(largest(v)));
        float2 sum = floats(v[0]);
#pragma unroll
        for (int i = 1; i < PARTS; i++) sum.x += floats(v[i]).x, sum.y += floats(v[i]).y;
        const float2 gate = numbers(gates + 2 * lane);
        stream.x += gate.x * sum.x, stream.y += gate.y * sum.y;
    }
    // The stream's rows, weighted for the next norm, and sums of their squares.
    __device__ __forceinline__ void leave(u8 *to, int rows, int squares, float2 scale) const {
        const float sum = summed(stream.x * stream.x + stream.y * stream.y);
        const u32 in_step = row() / 16 * 512 + (row() % 8 * 4 + lane % 4) * 16 + (lane % 8 / 4 * 2 + row() % 16 / 8) * 4;
        publish(to + (rows + (tile() * 4 + lane / 8) * STEP + in_step),
                pair(stream.x * (1.f + scale.x), stream.y * (1.f + scale.y)));
        if (lane == 0) publish(to + (squares + (row() * (WIDTH / TILE) + tile()) * 4), __float_as_uint(sum));
    }
    __device__ __forceinline__ void enter() {
        stream = make_float2(0.f, 0.f);
        if (row() >= given.rows) return;
        stream = two_of(given.into_bias + column());
        const float *action = given.actions + row() * given.numbers, *into = given.into + (u64)column() * given.numbers;
        for (int i = 0; i < given.numbers; i += 4) {
            float4 a = __ldg((const float4 *)(action + i)), b = __ldg((const float4 *)(into + i));
            float4 c = __ldg((const float4 *)(into + given.numbers + i));
            stream.x += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
            stream.y += a.x * c.x + a.y * c.y + a.z * c.z + a.w * c.w;
        }
    }
    __device__ __forceinline__ void make_inner() {
        uint4 v[WIDTH / 32];
        float c[32], kept[16];
        const u8 *from = set + SECOND + group * (WIDTH / 32) * STEP + read;
        ask(v, from);
        const Squares sums = squares(SECOND_SQUARES);
        multiply_tile(c, v, from);
        const float2 by = norms(sums, SECOND_SQUARES);
        halve<2>(kept, c);
        barrier_wait(shared.emptied(), layer & 1);
        float2 bias[4];
#pragma unroll
        for (int i = 0; i < 4; i++) bias[i] = numbers(INNER_BIAS + i / 2 * 32 + group * 16 + i % 2 * 8 + 2 * pairs());
        u32 made[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {  // two rows of eight columns, and of the next eight
            const int at = i / 2 * 4 + i % 2 * 2;
            const float scale = i % 2 ? by.y : by.x;
            const float2 gate_bias = bias[i / 2], up_bias = bias[2 + i / 2];
            float x = gelu(kept[at] * scale + gate_bias.x) * (kept[8 + at] * scale + up_bias.x);
            float y = gelu(kept[at + 1] * scale + gate_bias.y) * (kept[9 + at] * scale + up_bias.y);
            made[i] = pair(x, y);
        }
        publish_four(fragment(INNER, block * 2 + group), made[0], made[1], made[2], made[3]);
    }

    __device__ void run() {
        turn();
        enter();
        leave(set, FIRST, FIRST_SQUARES, two_of(given.table + column()));
#pragma unroll 1
        for (layer = 0; layer < LAYERS; layer++) {
            forget();
            set = given.published + layer % 2 * (u64)SET;
            make_heads();
            forget();
            attend();
            forget();
            combine();
            forget();
            leave_sums<DIM / 32>(HEARD, OUT_SUMS);
            forget();
            add(OUT_SUMS, FIRST_GATE);
            forget();
            leave(set, SECOND, SECOND_SQUARES, numbers(SECOND_SCALE + 2 * lane));
            forget();
            make_inner();
            forget();
            leave_sums<HIDDEN / PARTS / 32>(INNER, DOWN_SUMS);
            forget();
            add(DOWN_SUMS, SECOND_GATE);
            if (layer + 1 < LAYERS)
                leave(given.published + (layer + 1) % 2 * (u64)SET, FIRST, FIRST_SQUARES, numbers(NEXT_SCALE + 2 * lane));
            else if (row() < given.rows)
                *(u32 *)(given.result + row() * WIDTH + column()) = pair(stream.x, stream.y);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) flow_stack(const __grid_constant__ Arguments given) {
    extern __shared__ u8 memory[];
    const Shared shared{(shared_address(memory) + 1023) & ~1023u};
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        Place place;
        for (int i = 0; i < RING; i++, place.next()) {
            barrier_init(shared.full(place), 1);
            barrier_init(shared.free(place), WARPS);
        }
        barrier_init(shared.seen(), WARPS);
        barrier_init(shared.emptied(), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (warp == WARPS + 1) Numbers(given.table, given.table + EACH, lane).store(shared, 0, lane);
    __syncthreads();
    if (warp < WARPS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        Block(given, shared, warp).run();
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (warp == WARPS && lane == 0) {
            Producer producer{given, shared};
            asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(producer.once));
            producer.run();
        }
        if (warp == WARPS + 1) clean(given, shared, lane);
    }
}
