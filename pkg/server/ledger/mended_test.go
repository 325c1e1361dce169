package ledger_test

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
)

// TestMendedAsItWas: an unreadable object that is restored to its earlier version is readable
// again, whether it is listed or not.
func TestMendedAsItWas(t *testing.T) {
	for name, hidden := range map[string]bool{"listed": false, "not listed": true} {
		t.Run(name, func(t *testing.T) {
			inner := mem.New(mem.Config{HashETags: true})
			listing := objecttest.NewListing(inner)
			l := open(t, config(t, listing))
			defer closeLedger(t, l)
			load(t, l)
			w := l.Lead(term{epoch: 1})
			edit(t, w, web, resize(5))
			create(t, w, 1)
			before := map[string][]byte{}
			for _, key := range []string{webAt, key(1)} {
				o, err := inner.Get(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				before[key] = o.Body
			}
			put := func(key string, body []byte) {
				t.Helper()
				if _, err := inner.Put(t.Context(), key, body, object.Precondition{}); err != nil {
					t.Fatal(err)
				}
			}
			for key := range before {
				put(key, []byte(`{ "size": `))
			}
			if s := load(t, l); len(s.Malformed) != 1 || l.GroupState(web).Err == nil {
				t.Fatalf("spoilt: malformed %v, the group %v", s.Malformed, l.GroupState(web))
			}
			for key, body := range before {
				put(key, body)
			}
			listing.Hide(func(key string) bool {
				return hidden && (strings.HasPrefix(key, "groups/") || strings.HasPrefix(key, "instance/"))
			})
			if s := load(t, l); len(s.Malformed) != 0 || l.GroupState(web).Err != nil || sizeOf(l.GroupState(web).Record) != 5 {
				t.Errorf("mended: malformed %v, the group %v", s.Malformed, l.GroupState(web))
			}
		})
	}
}
