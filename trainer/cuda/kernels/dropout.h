// Which elements dropout keeps: package vec's choice, so that a model drops the same
// ones on every device.
#pragma once

#include "gpu.h"

// Dropout is device.Dropout: what the choice depends on.
struct Dropout {
  const volatile u64 *live;          // where key and first are read; null: here
  u64 key, first, step, per_sample;  // local sample i is sample first + i*step
  u32 threshold;                     // of 2^32: below it an element is left out
  float scale;                       // of what is kept
};

DEVICE u32 lowbias32(u32 x) {  // Wellons 2018
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// kept is the choice for element at of local sample number sample.
DEVICE bool kept(const Dropout &d, u64 sample, u64 at) {
  if (d.threshold == 0) return true;
  u64 key = d.key, first = d.first;
  if (d.live) {  // volatile: else a choice between addresses puts d into a thread's own memory
    key = d.live[0];
    first = d.live[1];
  }
  u64 number = (first + sample * d.step) * d.per_sample + at;
  u32 low = u32(key), top = u32(key >> 32);
  u32 a = lowbias32(low + lowbias32(u32(number >> 32) + top));
  u32 b = lowbias32(top ^ a);
  return lowbias32(lowbias32(u32(number) ^ a) + b) >= d.threshold;
}
