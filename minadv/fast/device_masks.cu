typedef unsigned int u32;
typedef unsigned long long u64;

__device__ u64 high(u64 a, u64 b) {  // the upper half of a product of 128 bits, of products of 32 bits
    const u64 low = (a & 0xffffffffULL) * (b & 0xffffffffULL);
    const u64 one = (a >> 32) * (b & 0xffffffffULL) + (low >> 32);
    const u64 other = (a & 0xffffffffULL) * (b >> 32) + (one & 0xffffffffULL);
    return (a >> 32) * (b >> 32) + (one >> 32) + (other >> 32);
}

extern "C" __global__ void minadv_keeps(u64 k0, u64 k1, u32 threshold, u64 first, u64 count, bool* out) {
    const u64 block = first / BLOCK + (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (block * BLOCK >= first + count) return;
    u64 c0 = block, c1 = 0, c2 = 0, c3 = 0;
    for (int round = 0; round < ROUNDS; ++round) {
        const u64 h0 = high(M0, c0), l0 = M0 * c0, h1 = high(M1, c2), l1 = M1 * c2;
        c0 = h1 ^ c1 ^ k0; c1 = l1; c2 = h0 ^ c3 ^ k1; c3 = l0;
        k0 += W0; k1 += W1;
    }
    const u64 words[4] = {c0, c1, c2, c3};
    for (int n = 0; n < BLOCK; ++n) {
        const u64 entry = block * BLOCK + n;
        if (entry >= first && entry < first + count)
            out[entry - first] = (u32)(words[n / 2] >> (n % 2 * 32)) >= threshold;
    }
}
