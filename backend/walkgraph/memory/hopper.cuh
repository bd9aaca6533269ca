// Of Hopper: tiles copied by tensor maps, products of warpgroups, clusters of blocks, launches that begin early.

typedef unsigned char u8;

struct alignas(64) TensorMap {
    u8 bytes[128];
};

__device__ __forceinline__ void copy_tile(u32 to, const TensorMap *map, int column, int row, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(barrier) : "memory");
}
// Of four and five dimensions; with a `policy` of the L2 cache.
__device__ __forceinline__ void copy_tile(u32 to, const TensorMap *map, int a, int b, int c, int d, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];"
                 ::"r"(to), "l"(map), "r"(a), "r"(b), "r"(c), "r"(d), "r"(barrier) : "memory");
}
__device__ __forceinline__ void copy_tile(u32 to, const TensorMap *map, int a, int b, int c, int d, u32 barrier, u64 policy) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1, {%2, %3, %4, %5}], [%6], %7;"
                 ::"r"(to), "l"(map), "r"(a), "r"(b), "r"(c), "r"(d), "r"(barrier), "l"(policy) : "memory");
}
__device__ __forceinline__ void copy_tile(
    u32 to, const TensorMap *map, int a, int b, int c, int d, int e, u32 barrier, u64 policy) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;"
                 ::"r"(to), "l"(map), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "r"(barrier), "l"(policy) : "memory");
}

// ── launches ──

__device__ __forceinline__ void wait_for_launch_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void let_next_launch_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// ── products ──

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void finish_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
// A side at a shared address: lines of 128 bytes, swizzled, 8 of them to 1024 bytes.
__device__ __forceinline__ u64 described_lines(u32 at) {
    return (u64)((at & 0x3ffff) >> 4) | 1ull << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}

#define SIXTY_FOUR(c) \
    "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), \
        "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), \
        "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), \
        "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
// c [64, N] (+)= a [64, 16] @ b [16, N], a from registers; ACROSS: lines of b are its rows, not its columns.
template <bool ACROSS = false> __device__ __forceinline__ void multiply_rows(float (&c)[32], uint4 a, u64 b, bool add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
                 : SIXTY_FOUR(c) : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b), "r"((int)add), "n"(ACROSS));
}
__device__ __forceinline__ void multiply_rows(float (&c)[8], uint4 a, u64 b, bool add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, p, 1, 1, 0;\n}"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b), "r"((int)add));
}

// ── clusters ──

// Every block has begun, and has set up its barriers before it arrived; what its threads wrote is not awaited.
__device__ __forceinline__ void cluster_arrives() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void cluster_began() { asm volatile("barrier.cluster.wait;" ::: "memory"); }
__device__ __forceinline__ u32 of_block(u32 at, int block) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
    return there;
}

// Into a block's memory: addresses `of_block`. The barrier there counts the bytes, and no other wait is needed.
__device__ __forceinline__ void send(u32 to, float4 v, u32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
                 ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier) : "memory");
}
__device__ __forceinline__ void send(u32 to, float2 v, u32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];"
                 ::"r"(to), "f"(v.x), "f"(v.y), "r"(barrier) : "memory");
}
__device__ __forceinline__ void send(u32 to, float v, u32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];"
                 ::"r"(to), "f"(v), "r"(barrier) : "memory");
}

// Until all of them have come, once.
__device__ __forceinline__ void wait_for_sent(u32 barrier) {
    asm volatile("{\n.reg .pred p;\nAGAIN:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\n@!p bra AGAIN;\n}"
                 ::"r"(barrier) : "memory");
}

// ── shared memory of this block ──

__device__ __forceinline__ float4 shared_four(u32 at) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at) : "memory");
    return v;
}
__device__ __forceinline__ float2 shared_two(u32 at) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
    return v;
}
__device__ __forceinline__ float shared_one(u32 at) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
    return v;
}
__device__ __forceinline__ void put(u32 at, float4 v) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
__device__ __forceinline__ void put(u32 at, float2 v) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(v.x), "f"(v.y) : "memory");
}
__device__ __forceinline__ void put(u32 at, float v) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
}
