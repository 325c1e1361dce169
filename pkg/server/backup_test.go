package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin/backup"
	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// backup returns a backup of the bucket.
func (s *site) backup() backup.Objects {
	s.t.Helper()
	var file bytes.Buffer
	if _, err := backup.Take(s.t.Context(), s.inner, &file); err != nil {
		s.t.Fatal(err)
	}
	objects, err := backup.Read(&file)
	if err != nil {
		s.t.Fatal(err)
	}
	return objects
}

// restore puts a backup back as nstance-admin does, and returns how many objects it replaced.
func (s *site) restore(objects backup.Objects, replace ...string) (replaced int) {
	s.t.Helper()
	what := backup.Selection{Replace: replace}
	stopped, err := backup.AwaitStopped(s.t.Context(), s.inner, objects, what, func(time.Duration) {})
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := backup.Compare(s.t.Context(), s.inner, objects, what)
	if err == nil {
		err = r.Apply(s.t.Context(), s.inner)
	}
	if err = errors.Join(err, stopped.Still(s.t.Context(), s.inner)); err != nil {
		s.t.Fatal(err)
	}
	for _, p := range r.Parts {
		replaced += p.Replaced
	}
	return replaced
}

// lost removes the bucket's contents.
func (s *site) lost() {
	s.t.Helper()
	for _, key := range s.keys("") {
		s.remove(key)
	}
}

// TestLostBucketRestored: a backup that was taken while the server ran, put back into an empty bucket,
// continues the shard: no machine goes or comes, sizes are as they were, and agents and operators keep their identities.
func TestLostBucketRestored(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, calm)
		p.scale(4)
		p.awaitSize("web", 4)
		_, pair := s.operator("default")
		machines, objects := s.living(), s.backup()
		p.ends()
		s.lost()
		s.restore(objects)
		s.world.ForgetCalls()
		q := s.successor()
		time.Sleep(20 * time.Minute)
		s.keptAll("after the restore", machines)
		groups, err := nstancev1.NewOperatorServiceClient(s.dial(q.operatorAddr(), pair)).ListGroups(within(t), &nstancev1.ListGroupsRequest{})
		if err != nil || len(groups.GetGroups()) != 1 || groups.GetGroups()[0].GetSize() != 4 || groups.GetGroups()[0].GetActualSize() != 4 {
			t.Errorf("an operator from before sees %v, %v", groups, err)
		}
		q.scale(5)
		q.awaitSize("web", 5)
	})
}

// TestServerNoticedBeforeRestore: a server that leads is noticed, also if its election record is lost.
func TestServerNoticedBeforeRestore(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			simulated(t, func(t *testing.T) {
				s, _ := running(t, calm)
				objects := s.backup()
				if lost {
					s.lost()
				}
				_, err := backup.AwaitStopped(t.Context(), s.inner, objects, backup.Selection{}, func(time.Duration) {})
				if !errors.Is(err, backup.ErrRunning) {
					t.Errorf("while a server leads: %v", err)
				}
			})
		})
	}
}

// TestOldBackupTakesNoMachine: a backup from before all machines were replaced, and before the group was made
// larger, adds the records of machines that have gone, or puts an older size back. None of the machines that run is
// taken for them.
func TestOldBackupTakesNoMachine(t *testing.T) {
	for name, tt := range map[string]struct {
		size      int32 // of the group when the backup is made
		replace   []string
		forgotten bool   // the tombstones of the old instances are gone, too
		told      string // what the group says; empty: it is at size
	}{
		"records of forgotten instances":     {size: 2, forgotten: true},
		"the records of instances as before": {size: 2, replace: []string{"instance"}},
		"of more than a tenth of them":       {size: 3, forgotten: true},
		"an older size":                      {size: 2, replace: []string{"groups"}, forgotten: true, told: "GroupRecordMissing"},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T) {
				s, p := running(t, calm, with("MORE", `"garbage_collection": { "deleted_record_retention": "1m" }`))
				p.scale(tt.size)
				p.awaitSize("web", tt.size)
				objects, old := s.backup(), s.living()
				for _, id := range old {
					if err := p.remove(id); err != nil {
						t.Fatal(err)
					}
				}
				p.scale(4)
				eventually(t, "the old ones are gone", func() error { return s.gone(old) })
				p.awaitSize("web", 4)
				machines := s.living()
				if tt.forgotten {
					eventually(t, "their tombstones are gone, too", func() error { return s.recordsAre(machines...) })
				}
				s.agents.end(old)
				p.ends()
				if n := s.restore(objects, tt.replace...); n == 0 != (len(tt.replace) == 0) {
					t.Errorf("%d objects were replaced", n)
				}
				if err := s.recordsAre(slices.Concat(old, machines)...); err != nil {
					t.Fatal(err)
				}
				q := s.successor()
				time.Sleep(20 * time.Minute)
				now := s.living()
				for _, id := range machines {
					if !slices.Contains(now, id) {
						t.Errorf("%s was taken: %v live of %v", id, now, machines)
					}
				}
				g := s.mustGroup(q, "web")
				if tt.told == "" && (len(now) != 4 || g.GetSize() != 4 || g.GetActualSize() != 4) || !strings.Contains(g.String(), tt.told) {
					t.Errorf("the group is %v, want %q", g, tt.told)
				}
			})
		})
	}
}

// TestOlderConfigStaysOut: if only config/ was lost, the config of a backup from before the shard accepted larger
// groups is not put back, and no machine goes.
func TestOlderConfigStaysOut(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, calm)
		objects := s.backup()
		s.groupsBecome(webOf(4))
		if _, err := p.refresh(); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("web", 4)
		machines := s.living()
		p.ends()
		s.remove("config/" + shardID + ".jsonc")
		s.restore(objects)
		s.world.ForgetCalls()
		s.successor()
		time.Sleep(20 * time.Minute)
		s.keptAll("after the restore", machines)
	})
}

// recordsAre returns an error unless these instances have records, and no others.
func (s *site) recordsAre(ids ...fleet.InstanceID) error {
	var have []fleet.InstanceID
	for _, r := range s.records() {
		have = append(have, r.ID)
	}
	slices.Sort(have)
	slices.Sort(ids)
	if !slices.Equal(have, ids) {
		return fmt.Errorf("records of %v, want %v", have, ids)
	}
	return nil
}

// end ends the agents of machines that have gone.
func (f *fleetOfAgents) end(ids []fleet.InstanceID) {
	defer f.lock()()
	for _, id := range ids {
		f.machines[id].conn.Close()
		delete(f.machines, id)
	}
}

// gone returns an error while one of the machines lives.
func (s *site) gone(ids []fleet.InstanceID) error {
	for _, id := range s.living() {
		if slices.Contains(ids, id) {
			return fmt.Errorf("%s lives", id)
		}
	}
	return nil
}
