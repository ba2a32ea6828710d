extern "C" __global__ void minadv_sum_by_token(const I* in_order, const long long* order, const T* dy, T* dE,
                                               long long N, long long V, int D) {
    // in_order: the tokens sorted, order: their places; a block takes a place of the sorted tokens and some columns; it has work if a token's places begin there
    const long long first = blockIdx.x, token = in_order[first];
    if (first > 0 && in_order[first - 1] == token) return;
    const int column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= D) return;
    T sum = dy[order[first] * D + column];
    for (long long n = first + 1; n < N && in_order[n] == token; n++) sum += dy[order[n] * D + column];
    const long long row = token % V;
    dE[(row < 0 ? row + V : row) * D + column] = sum;
}
