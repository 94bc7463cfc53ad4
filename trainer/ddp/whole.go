package ddp

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Spread gives every rank its parts of something that there is one of for each
// element of the parameters: values, or what an optimiser keeps. Rank 0 has all of it
// in whole, by parameter; others' whole is not looked at. parts are as [Sharder.Parts].
func (s *Sharder) Spread(ctx context.Context, parts, whole [][]float32) error {
	return s.each(parts, func(bucket int, all, mine []float32) error {
		if s.comm.Rank() == 0 {
			s.layout.clearGaps(bucket, all)
			for i, p := range s.layout.params(bucket) {
				copy(all[s.layout.places[p].at:][:p.Len()], whole[s.layout.spans[bucket].first+i])
			}
		}
		if err := s.comm.Broadcast(ctx, bytesOf(all), 0); err != nil {
			return fmt.Errorf("spread bucket %d of %d: %w", bucket, len(s.buckets), err)
		}
		if s.Strategy != DDP {
			copy(mine, all[s.comm.Rank()*len(mine):])
		}
		return nil
	})
}

// Collect is the opposite of Spread. Where every rank has all of it, as with DDP,
// what it returns is the parts' own memory; else it is new on rank 0, and nil on
// other ranks.
func (s *Sharder) Collect(ctx context.Context, parts [][]float32) (whole [][]float32, err error) {
	whole = make([][]float32, len(s.layout.all))
	err = s.each(parts, func(bucket int, all, mine []float32) error {
		if s.Strategy != DDP {
			copy(all[s.comm.Rank()*len(mine):], mine)
			if err := s.comm.AllGather(ctx, all); err != nil {
				return fmt.Errorf("collect bucket %d of %d: %w", bucket, len(s.buckets), err)
			}
		}
		for i, p := range s.layout.params(bucket) {
			v := all[s.layout.places[p].at:][:p.Len()]
			switch {
			case s.Strategy == DDP:
				whole[s.layout.spans[bucket].first+i] = v
			case s.comm.Rank() == 0:
				whole[s.layout.spans[bucket].first+i] = append([]float32(nil), v...)
			}
		}
		return nil
	})
	return whole, err
}

// Pieces calls f for all that this rank has of parameters, with the elements from
// place at on.
func (s *Sharder) Pieces(parts [][]float32, f func(param, at int, values []float32)) {
	for i, part := range parts {
		first := 0 // of the part in its bucket
		if s.Strategy != DDP {
			first = s.comm.Rank() * len(part)
		}
		for k, p := range s.layout.params(i) {
			place := s.layout.places[p].at
			from, to := max(first, place), min(first+len(part), place+p.Len())
			if from < to {
				f(s.layout.spans[i].first+k, from-place, part[from-first:to-first])
			}
		}
	}
}

// each has f work on each bucket, with memory for all of it: with DDP it is the part.
func (s *Sharder) each(parts [][]float32, f func(bucket int, all, mine []float32) error) error {
	var scratch []float32
	if s.Strategy != DDP {
		scratch = s.memory.Alloc(device.Float32, s.layout.largest()).Floats()
	}
	for i, span := range s.layout.spans {
		all := parts[i]
		if s.Strategy != DDP {
			all = scratch[:span.elements]
		}
		if err := f(i, all, parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// bytesOf is the memory of v: every processor that this is built for is
// little-endian, as files and connections are.
func bytesOf(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}
