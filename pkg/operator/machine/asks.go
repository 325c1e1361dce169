package machine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// asks are when shards were last asked to delete the instances of objects. A restarted
// operator begins without. The zero value is empty. It is safe for concurrent use.
type asks struct {
	mu  sync.Mutex
	all map[client.ObjectKey]asking
}

// asking was for an object, and not for one that had its name before.
type asking struct {
	uid types.UID
	at  time.Time
}

func (a *asks) note(m *v1beta1.NstanceMachine, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[client.ObjectKey]asking{}
	}
	a.all[client.ObjectKeyFromObject(m)] = asking{m.UID, now}
}

// last is when it was asked for an object; zero: it was not.
func (a *asks) last(m *v1beta1.NstanceMachine) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one, ok := a.all[client.ObjectKeyFromObject(m)]; ok && one.uid == m.UID {
		return one.at
	}
	return time.Time{}
}

// forget is for an object that is gone.
func (a *asks) forget(key client.ObjectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, key)
}
