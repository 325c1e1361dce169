package delivery_test

import (
	"strings"
	"testing"
	"testing/synctest"
)

// TestObjectsThatListingsLack: an object is there although a listing lacks it, at first
// and after it was read; one that can't be read by its key either is gone.
func TestObjectsThatListingsLack(t *testing.T) {
	const file = `"net.json": { "kind": "storage", "source": "files/net.json" }`
	inBubble(t, file, func(t *testing.T, s *site) {
		s.lists.Hide(func(string) bool { return true })
		a := s.connected("default")
		a.receives("net.json")
		s.put("files/net.json", `{"mtu": 9000}`)
		s.d.Refreshed()
		synctest.Wait()
		if have := string(a.disk["net.json"]); have != `{"mtu": 9000}` {
			t.Errorf("changed while it was not listed, and the agent has %s", have)
		}
		s.put("files/net.json.old", "{}") // what is listed first is another object
		s.lists.Hide(func(key string) bool { return key == "files/net.json" })
		s.put("files/net.json", `{"mtu": 1400}`)
		s.d.Refreshed()
		synctest.Wait()
		if have := string(a.disk["net.json"]); have != `{"mtu": 1400}` {
			t.Errorf("changed while another object was listed, and the agent has %s", have)
		}
		a.report()
		a.inOrder()
		if told := s.reported(); len(told) > 0 {
			t.Errorf("told %q", told)
		}
	})
	for what, c := range map[string]struct {
		spoil func(*site)
		want  string
	}{
		"gone":      {func(s *site) { _ = s.inner.Delete(s.ctx, "files/net.json") }, "there is no object files/net.json"},
		"too large": {func(s *site) { s.put("files/net.json", strings.Repeat("1", 1<<20+1)) }, "files/net.json has 1048577 bytes: at most"},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, file, func(t *testing.T, s *site) {
				s.lists.Hide(func(string) bool { return true })
				c.spoil(s)
				s.connected("default").receivesNothing()
				if told := s.reported(); len(told) != 1 || !strings.Contains(told[0], c.want) {
					t.Errorf("told %q, want %q", told, c.want)
				}
			})
		})
	}
}
