package backup_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/admin/backup"
	"github.com/nstance/nstance/pkg/object"
)

// TestAwaitStopped: a server that leads, or will, is found: by its renewals, or when it takes an abandoned record. A record
// that was released, to no successor, is not waited for.
func TestAwaitStopped(t *testing.T) {
	leads := func(rev int, more string) string {
		return fmt.Sprintf(`{"holder":"a.1","rev":%d,"lease_duration":"20s"%s}`, rev, more)
	}
	for name, tt := range map[string]struct {
		record  string
		renewed time.Duration
		waits   time.Duration
		timeout time.Duration
	}{
		"none":              {waits: 11*time.Minute + 5*time.Second},
		"written again":     {waits: 11*time.Minute + 5*time.Second, renewed: 10 * time.Second},
		"released":          {record: leads(1, `,"released":true`), waits: 15 * time.Second},
		"abandoned":         {record: leads(1, ""), waits: 27 * time.Second},
		"handed over":       {record: leads(1, `,"released":true,"successor":"b.1"`), renewed: 15 * time.Second, waits: 27 * time.Second},
		"not readable":      {record: "{", waits: 38 * time.Second},
		"a leader":          {record: leads(1, ""), renewed: 15 * time.Second, waits: 27 * time.Second},
		"taken by standby":  {record: leads(1, ""), renewed: 26 * time.Second, waits: 27 * time.Second},
		"taken back":        {record: leads(1, `,"released":true`), renewed: 10 * time.Second, waits: 15 * time.Second},
		"an absurd lease":   {record: `{"holder":"a.1","lease_duration":"2000000h"}`, waits: 38 * time.Second},
		"a negative lease":  {record: `{"holder":"a.1","lease_duration":"-1s"}`, waits: 38 * time.Second},
		"a shorter timeout": {record: leads(1, ""), timeout: 26 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := contents{}
				if tt.record != "" {
					c["leader/a.json"] = tt.record
				}
				s := c.store(t)
				if tt.renewed > 0 {
					time.AfterFunc(tt.renewed, func() {
						_, _ = s.Put(context.Background(), "leader/a.json", []byte(leads(2, "")), object.Precondition{})
					})
				}
				ctx := t.Context()
				if tt.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.timeout)
					defer cancel()
				}
				var waits time.Duration
				began := time.Now()
				objects := backup.Objects{"config/a.jsonc": nil}
				stopped, err := backup.AwaitStopped(ctx, s, objects, backup.Selection{}, func(d time.Duration) { waits = d })
				if errors.Is(err, backup.ErrRunning) != (tt.renewed > 0) || (err == nil) != (tt.renewed+tt.timeout == 0) {
					t.Errorf("error %v", err)
				}
				if waits != tt.waits || time.Since(began) != tt.waits {
					t.Errorf("waited %s, said %s, want %s", time.Since(began), waits, tt.waits)
				}
				if err != nil {
					return
				}
				if _, err := s.Put(t.Context(), "leader/b.json", []byte(leads(1, "")), object.Precondition{}); err != nil {
					t.Fatal(err)
				}
				if err := stopped.Still(t.Context(), s); !errors.Is(err, backup.ErrRunning) {
					t.Errorf("with a new leader: %v", err)
				}
			})
		})
	}
}

// TestLeaseOfConfig: the lease of a shard without an election record is the one of its config in the backup.
func TestLeaseOfConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = `{ "cluster": { "id": "example", "secrets": { "encryption_key": { "provider": "env", "source": "K" } } },
		  "server": { "provider": { "kind": "process" }, "subnet_pools": { "workers": ["local"] },
		    "leader_election": { "lease_duration": "2m" } } }`
		objects := backup.Objects{"config/a.jsonc": []byte(text)}
		began := time.Now()
		_, err := backup.AwaitStopped(t.Context(), contents{}.store(t), objects, backup.Selection{}, func(time.Duration) {})
		if took, want := time.Since(began), 2*time.Minute+17*time.Second; err != nil || took != want {
			t.Errorf("waited %s, %v, want %s", took, err, want)
		}
	})
}

// TestOtherShardsLead: servers of other shards than those that are put back are not looked at.
func TestOtherShardsLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := contents{"leader/a.json": `{"released":true}`, "leader/b.json": `{"holder":"b.1"}`}.store(t)
		time.AfterFunc(time.Second, func() {
			_, _ = s.Put(context.Background(), "leader/b.json", []byte(`{"holder":"b.2"}`), object.Precondition{})
		})
		objects := backup.Objects{"config/a.jsonc": nil, "config/b.jsonc": nil}
		began := time.Now()
		_, err := backup.AwaitStopped(t.Context(), s, objects, backup.Selection{Shards: []string{"a"}}, func(time.Duration) {})
		if took := time.Since(began); err != nil || took != 20*time.Second {
			t.Errorf("waited %s, %v", took, err)
		}
	})
}
