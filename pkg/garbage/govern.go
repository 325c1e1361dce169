package garbage

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// every is the sampling interval: while the percentage is low, a burst of allocations costs
// more the later it is noticed.
const every = 250 * time.Millisecond

// Govern adjusts the process's GC percentage and returns memory to the machine, until ctx ends.
func Govern(ctx context.Context) {
	govern(ctx, read, debug.SetGCPercent, debug.FreeOSMemory)
}

func govern(ctx context.Context, read func() reading, setPercent func(int) int, release func()) {
	var p pace
	tick := time.NewTicker(every)
	defer tick.Stop()
	for set := 0; ; {
		o := p.judge(read())
		if o.percent != set {
			set = o.percent
			setPercent(set)
		}
		if o.release {
			release()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// read samples the runtime's metrics.
func read() reading {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/scan/stack:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	return reading{
		at: time.Now(), allocated: samples[0].Value.Uint64(),
		lives: samples[1].Value.Uint64() + samples[2].Value.Uint64(), free: samples[3].Value.Uint64(),
	}
}
