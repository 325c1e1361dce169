package machine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// asks records when each object's shard was last told to delete its instance. It is lost on a
// restart. Its zero value is empty. It is safe for concurrent use.
type asks struct {
	mu  sync.Mutex
	all map[client.ObjectKey]asking
}

// asking is a deletion request for one object, told by UID from earlier objects of the same
// name.
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

// last returns the time of the last deletion request for an object; zero if there was none.
func (a *asks) last(m *v1beta1.NstanceMachine) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one, ok := a.all[client.ObjectKeyFromObject(m)]; ok && one.uid == m.UID {
		return one.at
	}
	return time.Time{}
}

// forget drops an object that is gone.
func (a *asks) forget(key client.ObjectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, key)
}
