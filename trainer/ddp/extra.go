package ddp

import "github.com/ddpbatch/ddpbatch/trainer/device"

// alone is that there is one rank: nothing is sent.
func (s *Sharder) alone() bool { return s.comm.Size() == 1 }

// placeOfExtra is where the sums of the extra scalars are, if it is on this rank.
func (s *Sharder) placeOfExtra() (device.Tensor, bool) {
	part, at := s.buckets[len(s.buckets)-1].gradPart, s.layout.extra
	if s.Strategy != DDP {
		if at/part.Len() != s.comm.Rank() {
			return device.Tensor{}, false
		}
		at %= part.Len()
	}
	return part.Slice(at, at+len(s.extra)), true
}

// sentExtra takes the sums of the extra scalars out of the gradients, if they are on
// this rank. With bf16, which would round them, each rank has its own, which are not
// added up yet; so does a rank alone.
func (s *Sharder) sentExtra() []float32 {
	if s.bf16 || s.alone() {
		return s.extra
	}
	place, here := s.placeOfExtra()
	if !here {
		return nil
	}
	s.read(s.extra, place)
	s.clear(place)
	return s.extra
}

// write, read and clear are of small tensors, which the processor's threads would not
// help with.
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
