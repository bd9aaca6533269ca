// Of `block_attention.cu`: the queries past the last whole 64 of a piece.

// ── up to 8 queries, of which each of OTHERS warps attends every third block ──

struct Few {
    static constexpr int BRICKS = KEYS / 16;
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
        const Arguments &given, const Share &share, const Ring &ring, const u16 *from, int rows, int which, int lane) {
        read(from, rows, given.heads * DIM, lane);
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
        float scores[BRICKS][4] = {};
        int key = lane % 8, half = lane / 8 % 2, other = lane / 16;  // which of the four tiles a lane has a line of
#pragma unroll
        for (int t = 0; t < BRICKS; t++)
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
            for (int t = 0; t < BRICKS; t++)
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
            for (int t = 0; t < BRICKS; t++)
#pragma unroll
                for (int j = r; j < 4; j += 2) {
                    scores[t][j] = power(fmaf(scores[t][j], scale, -higher));
                    total[r] += scores[t][j];
                }
#pragma unroll
            for (int i = 0; i < DIM / 16; i++) heard[i][r] *= keep, heard[i][r + 2] *= keep;
        }
#pragma unroll
        for (int t = 0; t < BRICKS; t++) {
            u32 b0 = transposed(pair(scores[t][0], scores[t][1])), b1 = transposed(pair(scores[t][2], scores[t][3]));
#pragma unroll
            for (int i = 0; i < DIM / 16; i++) {
                u32 a[4];
                load_tiles<true>(a, v + (16 * t + 8 * other + key) * LINE + ((2 * i + half ^ key) << 4));
                multiply(heard[i], a[0], a[1], a[2], a[3], b0, b1);
            }
        }
    }
    // The first warp adds those of the others.
    __device__ __forceinline__ void give(const Ring &ring, const Place &place, int which, int lane) {
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int by = 4; by < 32; by <<= 1) total[r] += __shfl_xor_sync(~0u, total[r], by);
        const int query = lane % 4 * 2, column = lane / 4;
        if (which > 0) leave(ring, which, query, column);
        asm volatile("bar.sync 1, %0;" ::"n"(32 * OTHERS) : "memory");
        if (which > 0) return;
        for (int other = 1; other < OTHERS; other++) add(ring, other, query, column);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = WHOLE + query + r;
            if (row >= place.rows) continue;
            const Target target(ring, place, 0, row);
#pragma unroll
            for (int i = 0; i < DIM / 8; i++) target.give(index_of(column + 8 * i), heard[i / 2][i % 2 * 2 + r]);
            if (column == 0) target.give(DIM, make_float2(best[r], total[r]));
        }
    }
    __device__ __forceinline__ void leave(const Ring &ring, int which, int query, int column) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const u32 row = ring.few(which, query + r);
#pragma unroll
            for (int i = 0; i < DIM / 8; i++) put(row + 4 * (column + 8 * i), heard[i / 2][i % 2 * 2 + r]);
            if (column == 0) put(row + 4 * DIM, make_float2(best[r], total[r]));
        }
    }
    __device__ __forceinline__ void add(const Ring &ring, int other, int query, int column) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const u32 row = ring.few(other, query + r);
            float2 sums = shared_two(row + 4 * DIM);
            float higher = fmaxf(best[r], sums.x), mine = power(best[r] - higher), theirs = power(sums.x - higher);
            best[r] = higher, total[r] = total[r] * mine + sums.y * theirs;
#pragma unroll
            for (int i = 0; i < DIM / 8; i++) {
                float &sum = heard[i / 2][i % 2 * 2 + r];
                sum = sum * mine + shared_one(row + 4 * (column + 8 * i)) * theirs;
            }
        }
    }
};
