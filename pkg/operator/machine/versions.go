package machine

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// versions has the resource versions of objects that this process's writes have replaced, until
// the cache shows what it wrote: a pass on one of them would decide on the past, and its writes
// would conflict. Each write is conditional on the version before, so the order is known
// without comparing versions. The zero value is empty. It is safe for concurrent use.
type versions struct {
	mu  sync.Mutex
	all map[client.ObjectKey]replaced
}

// replaced are the versions of one object, distinguished by UID from earlier ones of its name.
type replaced struct {
	uid      types.UID
	versions map[string]bool
}

// note records that a write has replaced from by to.
func (v *versions) note(from, to *v1beta1.NstanceMachine) {
	if from.ResourceVersion == to.ResourceVersion {
		return // it changed nothing
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all == nil {
		v.all = map[client.ObjectKey]replaced{}
	}
	key := client.ObjectKeyFromObject(from)
	if was := v.all[key]; was.versions == nil || was.uid != from.UID {
		v.all[key] = replaced{from.UID, map[string]bool{}}
	}
	v.all[key].versions[from.ResourceVersion] = true
}

// stale reports whether the cached object is one that was replaced. Otherwise the cache has the
// last write, or a later one.
func (v *versions) stale(m *v1beta1.NstanceMachine) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := client.ObjectKeyFromObject(m)
	if was := v.all[key]; was.uid == m.UID && was.versions[m.ResourceVersion] {
		return true
	}
	delete(v.all, key)
	return false
}

// forget drops an object that is gone.
func (v *versions) forget(key client.ObjectKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.all, key)
}
