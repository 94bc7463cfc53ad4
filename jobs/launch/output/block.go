package output

import "sync/atomic"

// blockBytes is the size of a block. It holds the output of more than two pauses of batchDelay at
// 1 GB per minute.
const blockBytes = 1 << 20

// maxSpareBlocks is the number of blocks of a stream that are stored for later output.
const maxSpareBlocks = 2

// A block is a buffer with output that several sinks write without a copy. It is free again when
// its last user releases it.
type block struct {
	b     []byte
	users atomic.Int32
	free  chan *block
}

// blocks are the free blocks of a stream.
type blocks chan *block

func newBlocks() blocks { return make(blocks, maxSpareBlocks) }

// take returns a block with one user.
func (f blocks) take() *block {
	var b *block
	select {
	case b = <-f:
	default:
		b = &block{b: make([]byte, blockBytes), free: f}
	}
	b.users.Store(1)
	return b
}

func (b *block) release() {
	if b.users.Add(-1) > 0 {
		return
	}
	select {
	case b.free <- b:
	default:
	}
}
