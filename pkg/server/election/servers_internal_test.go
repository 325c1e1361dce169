package election

import (
	"strings"
	"testing"
	"time"
)

// TestRecordOfManyServers: a record has its servers, and never more than it may have bytes. Its election
// does not depend on them.
func TestRecordOfManyServers(t *testing.T) {
	r := Record{Holder: "a", Epoch: 1, Rev: 1, LeaseDuration: time.Minute, FenceWindow: time.Second}
	for _, c := range []struct{ hosts, want int }{{0, 0}, {2, 2}, {120, 120}, {500, 128}} {
		all := make([]string, c.hosts)
		for n := range all {
			all[n] = strings.Repeat("a", 253)
		}
		body, err := (&Elector{cfg: Config{Servers: func() []string { return all }}}).body(r)
		if err != nil {
			t.Fatal(err)
		}
		if hosts, err := ParseServers(body); err != nil || len(hosts) != c.want {
			t.Errorf("%d servers: %d, %v, want %d", c.hosts, len(hosts), err, c.want)
		}
		if back, err := ParseRecord(body); err != nil || back != r {
			t.Errorf("%d servers: the record is %+v, %v", c.hosts, back, err)
		}
	}
	if body, err := (&Elector{}).body(r); err != nil || strings.Contains(string(body), "servers") {
		t.Errorf("without servers: %s, %v", body, err)
	}
}
