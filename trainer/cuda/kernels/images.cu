// Convolutions and pooling of images, which are rows of [channel, height, width].
#include "tiles.h"

// Convolution is device.ConvolutionShape.
struct Convolution { u32 in, out, height, width, kernel, padding, out_height, out_width, images, round; };

// patch returns the input that element `term` of the kernel reads for an output.
DEVICE float patch(const Convolution &s, const float *x, u32 term, u32 image, u32 at) {
  u32 kk = s.kernel * s.kernel, channel = term / kk, inner = term - channel * kk;
  u32 row = at / s.out_width + inner / s.kernel - s.padding, col = at % s.out_width + inner % s.kernel - s.padding;
  // Coordinates above or left of the image wrap around to huge values.
  return row < s.height && col < s.width ? x[((u64(image) * s.in + channel) * s.height + row) * s.width + col] : 0;
}

// y = x * w + b: weights (out x terms) times patches (terms x outputs of all images).
KERNEL(convolve, 256, float *y, const float *x, const float *w, const float *b, Convolution s) {
  u32 terms = s.in * s.kernel * s.kernel, size = s.out_height * s.out_width;
  tiles(
      s.out, s.images * size, terms, s.round, [=](u32 o, u32 l) { return w[u64(o) * terms + l]; },
      [=](u32 l, u32 j) { return patch(s, x, l, j / size, j % size); }, [=](u32 o, u32) { return b[o]; },
      [=](u32 o, u32 j, float sum) { y[(u64(j / size) * s.out + o) * size + j % size] = sum; });
}

// dw = gradients (out x outputs of all images) times patches, transposed; or added to dw. Block z
// has the outputs of a run; with several runs, dw has a result per run, which add_runs adds.
KERNEL(convolve_weight_grad, 256, float *dw, const float *dy, const float *x, Convolution s, u32 run, u32 accumulate) {
  u32 terms = s.in * s.kernel * s.kernel, size = s.out_height * s.out_width, first = block_z() * run, left = s.images * size - first;
  dw += u64(block_z()) * s.out * terms;
  tiles(
      s.out, terms, run < left ? run : left, s.round,
      [=](u32 o, u32 l) { return dy[(u64((first + l) / size) * s.out + o) * size + (first + l) % size]; },
      [=](u32 l, u32 j) { return patch(s, x, j, (first + l) / size, (first + l) % size); },
      [=](u32 o, u32 j) { return accumulate ? dw[u64(o) * terms + j] : 0; }, [=](u32 o, u32 j, float sum) { dw[u64(o) * terms + j] = sum; });
}

// dx = weights, transposed (in x out*kernel*kernel), times the gradients of the outputs that depend
// on the pixel.
KERNEL(convolve_input_grad, 256, float *dx, const float *dy, const float *w, Convolution s) {
  u32 kk = s.kernel * s.kernel, size = s.height * s.width;
  tiles(
      s.in, s.images * size, s.out * kk, s.round, [=](u32 i, u32 l) { return w[(u64(l / kk) * s.in + i) * kk + l % kk]; },
      [=](u32 l, u32 j) {
        u32 inner = l % kk, at = j % size, row = at / s.width + s.padding - inner / s.kernel, col = at % s.width + s.padding - inner % s.kernel;
        return row < s.out_height && col < s.out_width ? dy[((u64(j / size) * s.out + l / kk) * s.out_height + row) * s.out_width + col] : 0;
      },
      [=](u32, u32) { return 0.0f; }, [=](u32 i, u32 j, float sum) { dx[(u64(j / size) * s.in + i) * size + j % size] = sum; });
}

// db[channel] = the sum of dy over images and positions; or added to db. Block x is a channel, and
// block y a run of images; with several runs, db has a result per run, which add_runs adds.
KERNEL(convolve_bias_grad, 256, float *db, const float *dy, u32 images, u32 channels, u32 size, u32 run, u32 accumulate) {
  SHARED float scratch[32];
  float sum = 0;
  u32 first = block_y() * run, end = run < images - first ? first + run : images;
  db += u64(block_y()) * channels;
  for (u32 image = first; image < end; image++)
    for (u32 i = thread_x(); i < size; i += 256) sum += dy[(u64(image) * channels + block_x()) * size + i];
  sum = block_sum(sum, scratch);
  if (thread_x() == 0) db[block_x()] = accumulate ? db[block_x()] + sum : sum;
}

// Pool is device.PoolShape for planes = images*channels.
struct Pool { u32 height, width, size, out_height, out_width; };

// y = the maximum of each square, and chosen = its index, the first of equal ones. Grid: any, one
// dimension; n outputs.
KERNEL(max_pool, 256, float *y, int *chosen, const float *x, Pool s, u64 n) {
  for (u64 at = index(); at < n; at += stride()) {
    u64 line = at / s.out_width, plane = line / s.out_height;
    const float *square = x + (plane * s.height + line % s.out_height * s.size) * s.width + at % s.out_width * s.size;
    float most = square[0];
    u32 best = 0;
    for (u32 e = 1; e < s.size * s.size; e++) {
      float v = square[e / s.size * s.width + e % s.size];
      if (v > most || is_nan(v)) {
        most = v;
        best = e;
      }
    }
    y[at] = most;
    chosen[at] = int(best);
  }
}

// dx = dy for chosen elements, 0 for others. Grid: any, one dimension; n inputs.
KERNEL(max_pool_grad, 256, float *dx, const float *dy, const int *chosen, Pool s, u64 n) {
  for (u64 at = index(); at < n; at += stride()) {
    u64 line = at / s.width, plane = line / s.height;
    u32 row = u32(line % s.height), col = u32(at % s.width), down = row / s.size, across = col / s.size;
    float d = 0;
    if (down < s.out_height && across < s.out_width) {
      u64 square = (plane * s.out_height + down) * s.out_width + across;
      if (u32(chosen[square]) == row % s.size * s.size + col % s.size) d = dy[square];
    }
    dx[at] = d;
  }
}
