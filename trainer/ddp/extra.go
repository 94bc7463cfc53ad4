package ddp

import "github.com/ddpbatch/ddpbatch/trainer/device"

// isSingleRank reports whether there is only one rank, so that no communication is needed.
func (s *Sharder) isSingleRank() bool { return s.comm.Size() == 1 }

// extraSums returns the sums of the extra scalars, if they are in this rank's shard.
func (s *Sharder) extraSums() (device.Tensor, bool) {
	part, at := s.buckets[len(s.buckets)-1].gradPart, s.layout.extra
	if s.Strategy != DDP {
		if at/part.Len() != s.comm.Rank() {
			return device.Tensor{}, false
		}
		at %= part.Len()
	}
	return part.Slice(at, at+len(s.extra)), true
}

// takeExtra moves the sums of the extra scalars out of the gradients, if they are on this rank.
// With bf16, which would round them, it returns this rank's own scalars, which are not reduced yet.
// With one rank it also returns its own.
func (s *Sharder) takeExtra() []float32 {
	if s.bf16 || s.isSingleRank() {
		return s.extra
	}
	place, here := s.extraSums()
	if !here {
		return nil
	}
	s.read(s.extra, place)
	s.clear(place)
	return s.extra
}

// write, read, and clear are for small tensors. On the host they bypass the thread pool, which
// would not help.
func (s *Sharder) write(dst device.Tensor, src []float32) {
	if s.memory.Host() {
		copy(dst.Floats(), src)
	} else if len(src) > 0 {
		s.memory.Write(dst, src)
	}
}

func (s *Sharder) read(dst []float32, src device.Tensor) {
	if s.memory.Host() {
		copy(dst, src.Floats())
	} else if len(dst) > 0 {
		s.memory.Read(dst, src)
	}
}

func (s *Sharder) clear(t device.Tensor) {
	if s.memory.Host() {
		clear(t.Floats())
	} else if t.Len() > 0 {
		s.memory.Zero(t)
	}
}
