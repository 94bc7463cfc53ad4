package collective_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// onRanks runs a program on n goroutines, as mpiexec does on processes.
func onRanks(n int, program func(ctx context.Context, c collective.Communicator) error) {
	var wg sync.WaitGroup
	for _, c := range collective.Local(n, time.Minute) {
		wg.Go(func() {
			defer c.Close()
			if err := program(context.Background(), c); err != nil {
				fmt.Println(err)
			}
		})
	}
	wg.Wait()
}

// ExampleSend sends data from rank 0 to rank 1.
func ExampleSend() {
	onRanks(2, func(ctx context.Context, c collective.Communicator) error {
		const tag = 11
		if c.Rank() == 0 {
			return c.Do(ctx, collective.Send([]float64{7, 3.14}, 1, tag))
		}
		data := make([]float64, 2)
		err := c.Do(ctx, collective.Receive(data, 0, tag))
		fmt.Println("rank 1 has", data)
		return err
	})
	// Output: rank 1 has [7 3.14]
}

// ExampleBroadcast copies the data of rank 0 to all ranks.
func ExampleBroadcast() {
	onRanks(3, func(ctx context.Context, c collective.Communicator) error {
		data := make([]int32, 3)
		if c.Rank() == 0 {
			data = []int32{1, 2, 3}
		}
		if err := c.Do(ctx, collective.Broadcast(data, 0)); err != nil {
			return err
		}
		fmt.Println(data)
		return nil
	})
	// Output:
	// [1 2 3]
	// [1 2 3]
	// [1 2 3]
}

// ExampleGather collects each rank's loss on rank 0, and computes the mean on all ranks by reduce
// and broadcast.
func ExampleGather() {
	onRanks(4, func(ctx context.Context, c collective.Communicator) error {
		loss := []float32{float32(c.Rank())}
		var all []float32
		if c.Rank() == 0 {
			all = make([]float32, c.Size())
		}
		if err := c.Do(ctx, collective.Gather(all, loss, 0)); err != nil {
			return err
		}
		if err := c.Do(ctx, collective.Reduce(loss, collective.Mean, 0)); err != nil {
			return err
		}
		if err := c.Do(ctx, collective.Broadcast(loss, 0)); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println("losses", all)
		}
		if c.Rank() == 3 {
			fmt.Println("mean", loss[0])
		}
		return c.Do(ctx, collective.Barrier())
	})
	// Unordered output:
	// losses [0 1 2 3]
	// mean 1.5
}

// ExampleAllReduce runs in the background, like the all-reduce of gradients during the backward
// pass.
func ExampleAllReduce() {
	onRanks(2, func(ctx context.Context, c collective.Communicator) error {
		gradients := []float32{1, 2}
		sum := c.Start(ctx, collective.AllReduce(gradients, collective.Sum))
		// ... the backward pass continues ...
		if err := sum.Wait(); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(gradients)
		}
		return nil
	})
	// Output: [2 4]
}

// ExampleCommunicator_split forms separate groups of even and odd ranks.
func ExampleCommunicator_split() {
	onRanks(4, func(ctx context.Context, c collective.Communicator) error {
		group, err := c.Split(ctx, c.Rank()%2, c.Rank())
		if err != nil {
			return err
		}
		sum := []int64{int64(c.Rank())}
		if err := group.Do(ctx, collective.AllReduce(sum, collective.Sum)); err != nil {
			return err
		}
		if group.Rank() == 0 {
			fmt.Printf("group of rank %d: %d\n", c.Rank(), sum[0])
		}
		return c.Do(ctx, collective.Barrier())
	})
	// Unordered output:
	// group of rank 0: 2
	// group of rank 1: 4
}
