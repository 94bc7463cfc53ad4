package collective

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
)

// AllGatherJSON returns the values of all ranks, in rank order, on every rank. It encodes them as
// JSON and is meant for small, infrequent data, like PyTorch's all_gather_object.
func AllGatherJSON[T any](ctx context.Context, c Communicator, value T) ([]T, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	longest := []int64{int64(len(text))}
	if err := c.Do(ctx, AllReduce(longest, Max)); err != nil {
		return nil, err
	}
	size := int(longest[0])
	texts := make([]byte, size*c.Size())
	if err := c.Do(ctx, AllGather(texts, append(text, bytes.Repeat([]byte{' '}, size-len(text))...))); err != nil {
		return nil, err
	}
	all := make([]T, c.Size())
	for r := range all {
		if err := json.Unmarshal(texts[r*size:][:size], &all[r]); err != nil {
			return nil, fmt.Errorf("decode the value of rank %d: %w", r, err)
		}
	}
	return all, nil
}

// BroadcastJSON replaces the value on every rank with the root's. It is meant for small, infrequent
// data, like PyTorch's broadcast_object_list.
func BroadcastJSON[T any](ctx context.Context, c Communicator, value *T, root int) error {
	var text []byte
	if c.Rank() == root {
		var err error
		if text, err = json.Marshal(value); err != nil {
			return err
		}
	}
	size := []int64{int64(len(text))}
	if err := c.Do(ctx, Broadcast(size, root)); err != nil {
		return err
	}
	if c.Rank() != root {
		text = make([]byte, size[0])
	}
	if err := c.Do(ctx, Broadcast(text, root)); err != nil {
		return err
	}
	if c.Rank() == root {
		return nil
	}
	var got T // not the old value, whose maps and elements would remain
	if err := json.Unmarshal(text, &got); err != nil {
		return fmt.Errorf("decode the value of rank %d: %w", root, err)
	}
	*value = got
	return nil
}
