// The elements that dropout keeps: the same as in package vec, so that a model drops the same
// elements on every device.
#pragma once

#include "gpu.h"

// Dropout is device.Dropout: the inputs of the choice.
struct Dropout {
  const volatile u64 *live;  // address of key and first; null: use the fields
  u64 key, first, step, per_sample;  // local sample i is sample first + i*step
  u32 threshold;  // of 2^32: an element below it is dropped
  float scale;  // scale of kept elements
};

DEVICE u32 lowbias32(u32 x) {  // Wellons 2018
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// kept reports whether dropout keeps element at of the local sample.
DEVICE bool kept(const Dropout &d, u64 sample, u64 at) {
  if (d.threshold == 0) return true;
  u64 key = d.key, first = d.first;
  if (d.live) {  // volatile, because a select between addresses would move d to local memory
    key = d.live[0];
    first = d.live[1];
  }
  u64 number = (first + sample * d.step) * d.per_sample + at;
  u32 low = u32(key), top = u32(key >> 32);
  u32 a = lowbias32(low + lowbias32(u32(number >> 32) + top));
  u32 b = lowbias32(top ^ a);
  return lowbias32(lowbias32(u32(number) ^ a) + b) >= d.threshold;
}
