package ondemand

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// between is the shortest time between two warnings of one reason on a pod.
const between = 5 * time.Minute

// warned records when warnings were given, by the object that they are about. It is lost on a
// restart. The zero value is ready; it is safe for concurrent use.
type warned struct {
	mu  sync.Mutex
	all map[client.ObjectKey]map[string]time.Time
}

// first reports whether a warning is due, and records it then.
func (w *warned) first(about client.ObjectKey, warning string, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.all[about][warning]; ok && now.Sub(at) < between {
		return false
	}
	if w.all == nil {
		w.all = map[client.ObjectKey]map[string]time.Time{}
	}
	if w.all[about] == nil {
		w.all[about] = map[string]time.Time{}
	}
	w.all[about][warning] = now
	return true
}

// forget drops an object that is gone.
func (w *warned) forget(about client.ObjectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, about)
}
