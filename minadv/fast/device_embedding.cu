// in_order: the tokens sorted; order: where each of them stood. A block takes one of the sorted tokens and some columns,
// and has work if it is the first of its word. The places of a word are summed in their order, and read eight at a time:
// read one by one, each would wait for memory three times before the next is asked for.
extern "C" __global__ void minadv_sum_by_token(
    const I* __restrict__ in_order, const long long* __restrict__ order, const T* __restrict__ dy, T* __restrict__ dE,
    long long N, long long V, int D) {
    const long long first = blockIdx.x, token = in_order[first];
    if (first > 0 && in_order[first - 1] == token) return;
    const int column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= D) return;
    T sum = dy[order[first] * D + column];
    for (long long n = first + 1; n < N && in_order[n] == token; n += 8) {
        T rows[8];
        bool own[8];
        #pragma unroll
        for (int k = 0; k < 8; k++) {
            own[k] = n + k < N && in_order[n + k] == token;
            rows[k] = own[k] ? dy[order[n + k] * D + column] : 0;
        }
        #pragma unroll
        for (int k = 0; k < 8; k++) if (own[k]) sum += rows[k];
    }
    const long long row = token % V;
    dE[(row < 0 ? row + V : row) * D + column] = sum;
}
