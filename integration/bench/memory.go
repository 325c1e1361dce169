package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"time"
)

// memoryUse is what the Go runtime of this process uses memory for.
func memoryUse() string {
	const class = "/memory/classes/"
	names := []string{
		class + "heap/objects:bytes", class + "heap/stacks:bytes", class + "heap/unused:bytes", class + "heap/free:bytes",
		class + "total:bytes", class + "heap/released:bytes",
	}
	samples := make([]metrics.Sample, len(names))
	for n := range names {
		samples[n].Name = names[n]
	}
	metrics.Read(samples)
	mib := func(n int) float64 { return float64(samples[n].Value.Uint64()) / (1 << 20) }
	return fmt.Sprintf("heap objects %.0f, stacks %.0f, unused and free %.0f, all of Go %.0f MiB; %d goroutines",
		mib(0), mib(1), mib(2)+mib(3), mib(4)-mib(5), runtime.NumGoroutine())
}

// memory asks a server for its memoryUse.
func (c *child) memory(ctx context.Context) (string, error) {
	e, err := c.ask(ctx, "memory", 10*time.Second)
	return e.Text, err
}
