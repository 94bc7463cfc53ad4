// The ends of models. A block of 256 threads to a row of cols elements.
#include "maths.h"

// losses[row] = -log softmax(row)[label]; unless scale is 0 the row becomes the
// gradient of that, times scale. Probabilities are never stored. The maximum and the
// sum are found in one pass (Milakov and Gimelshein 2018).
KERNEL(cross_entropy, 256, float *losses, float *logits, const int *labels, float scale, u32 cols) {
  SHARED float room[32];
  float *row = logits + u64(block_x()) * cols, most = -infinity(), sum = 0;
  u32 label = u32(labels[block_x()]);
  float own = row[label];
  for (u32 j = thread_x(); j < cols; j += 256) {
    float v = row[j];
    if (v > most) {
      sum = sum * exponential(most - v) + 1;
      most = v;
    } else {
      sum += exponential(v - most);
    }
  }
  float top = block_max(most, room);
  sum = block_sum(sum == 0 ? 0 : sum * exponential(most - top), room);
  if (thread_x() == 0) losses[block_x()] = logarithm(sum) + (top - own);
  if (scale == 0) return;
  float factor = scale / sum;
  for (u32 j = thread_x(); j < cols; j += 256) {
    float g = exponential(row[j] - top) * factor;
    row[j] = j == label ? g - scale : g;
  }
}

// losses[row] = the sum of squared differences of x and targets; unless scale is 0 x
// becomes the gradient of that, times scale.
KERNEL(squared_error, 256, float *losses, float *x, const float *targets, float scale, u32 cols) {
  SHARED float room[32];
  x += u64(block_x()) * cols;
  targets += u64(block_x()) * cols;
  float sum = 0;
  for (u32 j = thread_x(); j < cols; j += 256) {
    float d = x[j] - targets[j];
    sum += d * d;
    if (scale != 0) x[j] = 2 * scale * d;
  }
  sum = block_sum(sum, room);
  if (thread_x() == 0) losses[block_x()] = sum;
}

// chosen[row] = the first column of the largest element.
KERNEL(arg_max, 256, int *chosen, const float *x, u32 cols) {
  SHARED float values[256];
  SHARED u32 places[256];
  u32 t = thread_x(), at = t < cols ? t : 0;
  x += u64(block_x()) * cols;
  float most = x[at];
  for (u32 j = t + 256; j < cols; j += 256)
    if (x[j] > most) {
      most = x[j];
      at = j;
    }
  values[t] = most;
  places[t] = at;
  sync_threads();
  for (u32 half = 128; half > 0; half /= 2) {
    if (t < half && (values[t + half] > values[t] || (values[t + half] == values[t] && places[t + half] < places[t]))) {
      values[t] = values[t + half];
      places[t] = places[t + half];
    }
    sync_threads();
  }
  if (t == 0) chosen[block_x()] = int(places[0]);
}
