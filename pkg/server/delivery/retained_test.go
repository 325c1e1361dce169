package delivery_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nstance/nstance/pkg/server/delivery"
)

// TestReportsRetained: an agent's reported errors, however long, do not stay in the server's
// memory while its streams are open.
func TestReportsRetained(t *testing.T) {
	const agents, size = 64, 1 << 20
	inBubble(t, allKinds, func(t *testing.T, f *fixture) {
		var held []*agent
		for range agents {
			held = append(held, f.instance("default"))
		}
		before := heap()
		for _, a := range held {
			f.d.Reported(a.id, delivery.FileReport{Files: []delivery.FileStatus{
				{Name: "a.env", State: delivery.Failed, Error: strings.Repeat("x", size)},
			}})
		}
		synctest.Wait()
		if grown := heap() - before; grown > agents*size/4 {
			t.Errorf("%d bytes more for %d reports: want a few hundred each", grown, agents)
		}
		runtime.KeepAlive(held)
	})
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below the limit
}
