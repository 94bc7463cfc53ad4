package ddp

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// SendParam sends all elements of a parameter to all ranks. It calls fill once per chunk, with the
// index of the chunk's first element.
type SendParam func(param int, fill func(at int, values []float32) error) error

// chunk is the maximum number of elements per broadcast: small compared with any model, and large
// compared with the latency of a broadcast.
const chunk = 1 << 18

// ScatterState sends every rank its parts of data that has one value per parameter element:
// parameter values, or optimizer state. On rank 0, it calls from, which must send every parameter,
// in any order. If from sends a parameter twice, the second replaces the first. Each rank needs
// memory for its parts and one chunk only. Parts has the shape of [Sharder.Parts].
func (s *Sharder) ScatterState(ctx context.Context, parts [][]float32, from func(SendParam) error) error {
	var scratch []float32
	if s.Strategy != DDP {
		scratch = make([]float32, chunk)
	}
	// send broadcasts a parameter on rank 0 and receives it on other ranks, where fill is nil.
	send := func(param int, fill func(int, []float32) error) error {
		n := s.layout.all[param].Len()
		for at := 0; at < n; at += chunk {
			values := s.chunkMemory(parts, scratch, param, at, min(chunk, n-at))
			if fill != nil {
				if err := fill(at, values); err != nil {
					return err
				}
			}
			if err := s.comm.Broadcast(ctx, element.Bytes(values), 0); err != nil {
				return fmt.Errorf("broadcast parameter %d of %d: %w", param, len(s.layout.all), err)
			}
			s.storeShard(parts, values, param, at)
		}
		return nil
	}
	if s.comm.Rank() == 0 {
		return s.scatterFrom(ctx, from, send)
	}
	for {
		param, err := s.broadcastParam(ctx, noBucket)
		if err != nil || param == noBucket {
			return err
		}
		if err := send(param, nil); err != nil {
			return err
		}
	}
}

// scatterFrom implements rank 0's side of ScatterState.
func (s *Sharder) scatterFrom(ctx context.Context, from func(SendParam) error, send SendParam) error {
	sent := make([]bool, len(s.layout.all))
	err := from(func(param int, fill func(int, []float32) error) error {
		sent[param] = true
		if _, err := s.broadcastParam(ctx, param); err != nil {
			return err
		}
		return send(param, fill)
	})
	if err != nil {
		return err
	}
	if i := slices.Index(sent, false); i >= 0 {
		panic(fmt.Sprintf("ddp: internal error: parameter %d was not sent", i))
	}
	_, err = s.broadcastParam(ctx, noBucket)
	return err
}

// broadcastParam broadcasts the index of the next parameter from rank 0 and returns it.
func (s *Sharder) broadcastParam(ctx context.Context, param int) (int, error) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(param))
	if err := s.comm.Broadcast(ctx, b[:], 0); err != nil {
		return 0, fmt.Errorf("broadcast parameters: %w", err)
	}
	return int(binary.LittleEndian.Uint64(b[:])), nil
}

// chunkMemory returns memory for n elements of a parameter: their final position with DDP, scratch
// otherwise.
func (s *Sharder) chunkMemory(parts [][]float32, scratch []float32, param, at, n int) []float32 {
	if s.Strategy != DDP {
		return scratch[:n]
	}
	pos := s.layout.positions[s.layout.all[param]]
	return parts[pos.bucket][pos.offset+at:][:n]
}

// storeShard copies the elements of this rank's shard to its part.
func (s *Sharder) storeShard(parts [][]float32, values []float32, param, at int) {
	if s.Strategy == DDP {
		return
	}
	pos := s.layout.positions[s.layout.all[param]]
	part, begin := parts[pos.bucket], pos.offset+at
	first := s.comm.Rank() * len(part) // index in the bucket of the part's first element
	from, to := max(first, begin), min(first+len(part), begin+len(values))
	if from < to {
		copy(part[from-first:to-first], values[from-begin:])
	}
}

// EachRange calls f for each range of a parameter that this rank has, with the index at of its
// first element. parts has one element per bucket, with the length of this rank's part of it. The
// values that f receives share the memory of parts.
func (s *Sharder) EachRange(parts [][]float32, f func(param, at int, values []float32)) {
	for i, part := range parts {
		for _, p := range slices.Backward(s.parts[i].Pieces) { // in registration order within the bucket
			f(slices.Index(s.layout.all, p.Param), p.Offset, part[p.At:p.At+p.Len])
		}
	}
}
