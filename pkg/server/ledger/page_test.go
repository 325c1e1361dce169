package ledger_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object/mem"
	_ "github.com/nstance/nstance/pkg/rapidseed"
)

// TestPageIsPartOfAll: a page has what Instances has of the group or tenant, after the ID, in order,
// and says whether there is more.
func TestPageIsPartOfAll(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := open(t, config(t, mem.New(mem.Config{})))
		defer closeLedger(t, l)
		w := l.Lead(term{epoch: 3})
		for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, 20), 0, 12, rapid.ID).Draw(r, "instances") {
			i := pending(n)
			i.Tenant = rapid.SampledFrom([]string{"default", "prod"}).Draw(r, "tenant")
			i.Group = rapid.SampledFrom([]string{"web", "db"}).Draw(r, "group")
			if _, err := w.Create(t.Context(), i); err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(r, "ordered") {
				l.Instances() // the order is kept from then on
			}
			if i.Tenant == "default" && rapid.Bool().Draw(r, "deleted") {
				update(t, w, n, fleet.Deleted)
			}
		}
		key := fleet.GroupKey{
			Tenant: rapid.SampledFrom([]string{"default", "prod", "none"}).Draw(r, "tenant"),
			Name:   rapid.SampledFrom([]string{"", "web", "none"}).Draw(r, "name"),
		}
		after, limit := newID(rapid.IntRange(0, 20).Draw(r, "after")), rapid.IntRange(1, 5).Draw(r, "limit")
		if rapid.Bool().Draw(r, "first") {
			after = ""
		}
		wanted := func(p fleet.Phase) bool { return p != fleet.Deleted }
		want := slices.DeleteFunc(l.Instances(), func(i fleet.Instance) bool {
			return i.Tenant != key.Tenant || key.Name != "" && i.Group != key.Name || i.ID <= after || !wanted(i.Phase)
		})
		page, more := l.Page(key, after, limit, wanted)
		if have, wants := ids(page), ids(want[:min(limit, len(want))]); have != wants || more != (len(want) > limit) {
			r.Errorf("%d of %v after %s: %s, more %t; want %s of %d", limit, key, after, have, more, wants, len(want))
		}
	})
}
