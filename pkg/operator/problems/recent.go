package problems

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// while is the minimum interval between equal events on an object.
const while = 10 * time.Minute

// maxRecent is how many keys are remembered at least.
const maxRecent = 5_000

// recent remembers when keys were added: at least the last maxRecent of them, and at most
// twice as many. Callers must lock it.
type recent[K comparable] struct{ newer, older map[K]time.Time }

func newRecent[K comparable]() recent[K] {
	return recent[K]{newer: map[K]time.Time{}, older: map[K]time.Time{}}
}

func (r *recent[K]) at(k K) (time.Time, bool) {
	if at, ok := r.newer[k]; ok {
		return at, true
	}
	at, ok := r.older[k]
	return at, ok
}

func (r *recent[K]) add(k K, at time.Time) {
	if _, ok := r.newer[k]; !ok && len(r.newer) >= maxRecent {
		r.newer, r.older = map[K]time.Time{}, r.newer
	}
	r.newer[k] = at
}

func (r *recent[K]) drop(k K) {
	delete(r.newer, k)
	delete(r.older, k)
}

// word is an event on an object.
type word struct {
	object  types.UID
	reason  string
	message string
	over    bool
}

func wordOf(o client.Object, p *nstancev1.WatchErrorsResponse) word {
	return word{object: o.GetUID(), reason: p.GetReason(), message: fleet.WithoutIDs(p.GetMessage()), over: p.GetOver()}
}
