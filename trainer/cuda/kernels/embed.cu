// Embeddings of tokens and positions. Matrices have cols columns without gaps.
#include "gpu.h"

// y[i] = table[tokens[i]] + positions[first + i mod length]. One block per row.
KERNEL(embed, 256, float *y, const int *tokens, const float *table, const float *positions, u32 cols, u32 length, u32 first) {
  u64 row = block_x(), token = u64(tokens[row]), position = first + row % length;
  for (u32 j = thread_x(); j < cols; j += 256) y[row * cols + j] = table[token * cols + j] + positions[position * cols + j];
}

// A range of tokens per thread of a block of 512 threads.
struct Run { u32 begin, end; };
DEVICE Run run_of(u32 n) {
  u32 t = thread_x(), each = (n + 511) / 512, begin = t * each < n ? t * each : n;
  return {begin, begin + each < n ? begin + each : n};
}

// starts replaces sums, one value per thread of a block of 512, by the sums up to each thread. It
// returns the sum before this thread.
DEVICE u32 starts(u32 *sums) {
  u32 t = thread_x();
  sync_threads();
  for (u32 step = 1; step < 512; step *= 2) {
    u32 before = t >= step ? sums[t - step] : 0;
    sync_threads();
    sums[t] += before;
    sync_threads();
  }
  return t > 0 ? sums[t - 1] : 0;
}

// Sorts n tokens with their positions, so that equal tokens are adjacent, in ascending order of their
// positions. Each block sorts the tokens whose last bits equal its index, in one part of the result;
// part_bits is the number of these bits, and the grid has a block for each part. So frequent tokens,
// whose IDs are low in some vocabularies, are in different blocks. A block collects its tokens, then
// sorts them by the other bits: an LSD radix sort with digits of 4 bits, in stable passes (Knuth
// 1973, 5.2.5). The result is in keys and positions after an even number of passes, and in keys2 and
// positions2 after an odd number. Blocks of 512 threads: each thread has a run of tokens in each pass.
KERNEL(sort_tokens, 512, int *keys, int *positions, int *keys2, int *positions2, const int *tokens, u32 n, u32 part_bits, u32 passes) {
  SHARED u32 counts[16 * 512], sums[512];
  u32 t = thread_x(), part = block_x(), mask = (1u << part_bits) - 1;
  Run r = run_of(n);
  u32 smaller = 0, own = 0;
  for (u32 i = r.begin; i < r.end; i++) {
    u32 bits = u32(tokens[i]) & mask;
    smaller += bits < part;
    own += bits == part;
  }
  sums[t] = smaller;
  starts(sums);
  u32 first = sums[511];  // of this part
  sync_threads();
  sums[t] = own;
  u32 at = first + starts(sums), length = sums[511];
  for (u32 i = r.begin; i < r.end; i++)
    if ((u32(tokens[i]) & mask) == part) {
      keys[at] = tokens[i];
      positions[at++] = int(i);
    }
  sync_threads();
  r = run_of(length);
  for (u32 pass = 0; pass < passes; pass++) {
    const int *from = (pass % 2 ? keys2 : keys) + first, *which = (pass % 2 ? positions2 : positions) + first;
    int *to = (pass % 2 ? keys : keys2) + first, *positions_to = (pass % 2 ? positions : positions2) + first;
    u32 shift = part_bits + 4 * pass;
    for (u32 d = 0; d < 16; d++) counts[d * 512 + t] = 0;
    for (u32 i = r.begin; i < r.end; i++) counts[(u32(from[i]) >> shift & 15) * 512 + t]++;
    sync_threads();
    u32 sum = 0;  // from counts to the start of each digit of each run
    for (u32 i = 0; i < 16; i++) {
      u32 count = counts[t * 16 + i];
      counts[t * 16 + i] = sum;
      sum += count;
    }
    sums[t] = sum;
    u32 before = starts(sums);
    for (u32 i = 0; i < 16; i++) counts[t * 16 + i] += before;
    sync_threads();
    for (u32 i = r.begin; i < r.end; i++) {
      u32 at = counts[(u32(from[i]) >> shift & 15) * 512 + t]++;
      to[at] = from[i];
      positions_to[at] = which[i];
    }
    sync_threads();
  }
}

// Adds row positions[i] of dy to row keys[i] of dtable, in ascending order of i. One block per i
// and 256 columns. Only the block of the first i with the same key does the work. It loads eight
// rows at a time, because a twentieth of all tokens may be equal, and their block would be the last
// to finish.
KERNEL(embed_grad, 256, float *dtable, const float *dy, const int *keys, const int *positions, u32 n, u32 cols) {
  u32 first = block_x(), col = block_y() * 256 + thread_x();
  int key = keys[first];
  if ((first > 0 && keys[first - 1] == key) || col >= cols) return;
  float sum = dtable[u64(key) * cols + col];
  for (u32 i = first; i < n && keys[i] == key; i += 8) {
    bool matches[8];
    float v[8];
#pragma unroll
    for (u32 k = 0; k < 8; k++) {  // without a branch, because each load would wait for the one before
      u32 at = i + k < n ? i + k : n - 1;
      matches[k] = (i + k < n) & (keys[at] == key);
      v[k] = dy[u64(positions[at]) * cols + col];
    }
#pragma unroll
    for (u32 k = 0; k < 8; k++)
      if (matches[k]) sum += v[k];
  }
  dtable[u64(key) * cols + col] = sum;
}

// Adds the rows of dy at position block_x of each sequence to that row of dpositions.
KERNEL(position_grad, 256, float *dpositions, const float *dy, u32 rows, u32 cols, u32 length) {
  for (u32 j = thread_x(); j < cols; j += 256) {
    float sum = dpositions[u64(block_x()) * cols + j];
    for (u32 i = block_x(); i < rows; i += length) sum += dy[u64(i) * cols + j];
    dpositions[u64(block_x()) * cols + j] = sum;
  }
}
