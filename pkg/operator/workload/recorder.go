package workload

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// Recorder records events in the cluster, on its objects. Like Client it may be kept; without
// a connection, events are dropped.
func (c *Cluster) Recorder(name string) events.EventRecorder { return recorder{c, name} }

type recorder struct {
	c    *Cluster
	name string
}

func (r recorder) Eventf(about, related runtime.Object, kind, reason, action, note string, args ...any) {
	if l, err := r.c.now(); err == nil {
		l.recorder(r.name).Eventf(about, related, kind, reason, action, note, args...)
	}
}
