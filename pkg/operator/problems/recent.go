package problems

import (
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// The same is told again on an object after a while.
const while = 10 * time.Minute

// maxRecent is how many things of a kind are remembered at least.
const maxRecent = 5_000

// recent remembers when things happened: at least the last maxRecent of them, and never
// more than twice as many. Whoever has it must lock it.
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

// word is one thing that was told on an object.
type word struct {
	object  types.UID
	reason  string
	message string
	over    bool
}

// instanceID finds the ids of instances, of which each failed attempt has another one.
var instanceID = regexp.MustCompile(`\b[a-z]{3}[0-9a-hjkmnp-tv-z]{26}\b`)

func wordOf(o client.Object, p *nstancev1.WatchErrorsResponse) word {
	return word{object: o.GetUID(), reason: p.GetReason(), message: instanceID.ReplaceAllString(p.GetMessage(), ""), over: p.GetOver()}
}
