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
	return part.Slice(at, at+s.extra.Len()), true
}

// takeExtra moves the sums of the extra scalars out of the gradients to a record, if they are on
// this rank; otherwise it clears the scalars of the record. With bf16, which would round them, and
// with one rank, it copies this rank's own scalars.
func (s *Sharder) takeExtra(to device.Tensor) {
	if s.extra.Len() == 0 {
		return
	}
	if s.bf16 || s.isSingleRank() {
		s.memory.Cast(to, s.extra)
		return
	}
	if sums, ok := s.extraSums(); ok {
		s.memory.Cast(to, sums)
		s.clear(sums)
	} else {
		s.clear(to)
	}
}

// copy and clear are for small tensors. On the host they bypass the thread pool, which would not
// help.
func (s *Sharder) copy(dst, src device.Tensor) {
	if s.memory.Host() {
		copy(dst.Floats(), src.Floats())
	} else if dst.Len() > 0 {
		s.memory.Copy(dst, src)
	}
}

func (s *Sharder) clear(t device.Tensor) {
	switch {
	case t.Len() == 0:
	case !s.memory.Host():
		s.memory.Zero(t)
	case t.Type() == device.Float64:
		clear(t.Doubles())
	default:
		clear(t.Floats())
	}
}
