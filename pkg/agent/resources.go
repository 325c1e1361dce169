package agent

import (
	"context"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Sample measures the machine. Values that can't be measured are zero: the report is still a
// heartbeat. CPU is the usage since the last call, over all cores; disk is the file system at
// "/".
func Sample(ctx context.Context) *nstancev1.Resources {
	r := &nstancev1.Resources{}
	if used, err := cpu.PercentWithContext(ctx, 0, false); err == nil && len(used) == 1 {
		r.CpuPercent = used[0]
	}
	if m, err := mem.VirtualMemoryWithContext(ctx); err == nil {
		r.MemoryUsedBytes, r.MemoryTotalBytes = m.Used, m.Total
	}
	if l, err := load.AvgWithContext(ctx); err == nil {
		r.Load1, r.Load5, r.Load15 = l.Load1, l.Load5, l.Load15
	}
	if d, err := disk.UsageWithContext(ctx, "/"); err == nil {
		r.DiskUsedBytes, r.DiskTotalBytes = d.Used, d.Total
	}
	return r
}
