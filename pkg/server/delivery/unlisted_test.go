package delivery_test

import (
	"strings"
	"testing"
	"testing/synctest"
)

// TestObjectsThatListingsLack: an object exists even if a listing lacks it, before and after
// it was read; one that can't be read by its key either does not.
func TestObjectsThatListingsLack(t *testing.T) {
	const file = `"net.json": { "kind": "storage", "source": "files/net.json" }`
	inBubble(t, file, func(t *testing.T, f *fixture) {
		f.lists.Hide(func(string) bool { return true })
		a := f.connected("default")
		a.receives("net.json")
		f.put("files/net.json", `{"mtu": 9000}`)
		f.d.Refreshed()
		synctest.Wait()
		if have := string(a.disk["net.json"]); have != `{"mtu": 9000}` {
			t.Errorf("changed while it was not listed, and the agent has %s", have)
		}
		f.put("files/net.json.old", "{}") // another object is listed first
		f.lists.Hide(func(key string) bool { return key == "files/net.json" })
		f.put("files/net.json", `{"mtu": 1400}`)
		f.d.Refreshed()
		synctest.Wait()
		if have := string(a.disk["net.json"]); have != `{"mtu": 1400}` {
			t.Errorf("changed while another object was listed, and the agent has %s", have)
		}
		a.report()
		a.inOrder()
		if told := f.reported(); len(told) > 0 {
			t.Errorf("told %q", told)
		}
	})
	for what, c := range map[string]struct {
		spoil func(*fixture)
		want  string
	}{
		"gone":      {func(f *fixture) { _ = f.inner.Delete(f.ctx, "files/net.json") }, "object files/net.json does not exist"},
		"too large": {func(f *fixture) { f.put("files/net.json", strings.Repeat("1", 1<<20+1)) }, "files/net.json has 1048577 bytes: at most"},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, file, func(t *testing.T, f *fixture) {
				f.lists.Hide(func(string) bool { return true })
				c.spoil(f)
				f.connected("default").receivesNothing()
				if told := f.reported(); len(told) != 1 || !strings.Contains(told[0], c.want) {
					t.Errorf("told %q, want %q", told, c.want)
				}
			})
		})
	}
}
