package server_test

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/leader"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// essentials are the objects without which no server can start, or none knows the last config.
func essentials() []string {
	return []string{
		"applied/" + shardID + ".jsonc", "cluster/ca.crt", "cluster/secret/ca-bundle", "cluster/secret/ca.key",
		"cluster/secret/registration-nonce.key", configAt,
	}
}

// quiet makes agents that never report good for hours.
func quiet() func(*site) { return replaced(`"report_interval": "1m"`, `"report_interval": "1h"`) }

// settled stores nothing more: the config that the term began with is recorded.
func (s *site) settled() { time.Sleep(10 * time.Minute) }

// TestEssentialsAreStoredAgain: whatever is gone of what no server can start without, the leader
// stores it again within an hour and tells; the next server starts, and no machine is lost.
func TestEssentialsAreStoredAgain(t *testing.T) {
	gone := map[string][]string{"all": essentials()}
	for _, key := range essentials() {
		gone[key] = []string{key}
	}
	for name, keys := range gone {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t, quiet())
			s.settled()
			machines := s.living()
			if text := s.get(configAt); text != s.accepted() {
				t.Fatal("the config is not the accepted one yet")
			}
			for _, key := range keys {
				s.remove(key)
			}
			s.world.ForgetCalls()
			time.Sleep(time.Hour)
			for _, key := range essentials() {
				if !slices.Contains(s.keys(""), key) {
					t.Fatalf("%s is gone", key)
				}
			}
			if s.get(configAt) != s.accepted() {
				t.Error("config/ and applied/ differ")
			}
			if n := p.log.counting("problem", "reason", leader.ReasonRestored); n != len(keys) {
				t.Errorf("told %d times, want %d", n, len(keys))
			}
			time.Sleep(time.Hour)
			if n := p.log.counting("problem", "reason", leader.ReasonRestored); n != len(keys) {
				t.Errorf("told again, %d times in all", n)
			}
			p.ends()
			q := s.successor()
			q.awaitSize("web", 2)
			s.keptAll("after the restart", machines)
		}))
	}
}

// TestEssentialsThatDiffer: keys of another cluster, or damaged ones, are told for as long as they
// last, and left as they are.
func TestEssentialsThatDiffer(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, quiet())
		s.settled()
		const key = "cluster/secret/ca.key"
		good, errs := s.get(key), p.watchErrors("default")
		s.put(key, "damaged")
		s.remove("cluster/ca.crt")
		time.Sleep(2 * time.Hour)
		if s.get(key) != "damaged" || slices.Contains(s.keys("cluster/"), "cluster/ca.crt") {
			t.Error("something was stored")
		}
		errs.next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonTrust && !e.GetOver() && strings.Contains(e.GetMessage(), "no server can start")
		})
		s.put(key, good)
		time.Sleep(time.Hour)
		errs.next("it is over", func(e *nstancev1.WatchErrorsResponse) bool { return e.GetReason() == leader.ReasonTrust && e.GetOver() })
		if !slices.Contains(s.keys("cluster/"), "cluster/ca.crt") {
			t.Error("the certificate is still gone")
		}
	})
}

// TestDamagedAppliedIsStoredAgain: an applied/ that can't be read is written anew, and told as damaged.
func TestDamagedAppliedIsStoredAgain(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, quiet())
		s.settled()
		errs := p.watchErrors("default")
		s.put("applied/"+shardID+".jsonc", "damaged")
		time.Sleep(time.Hour)
		errs.next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonRestored && strings.Contains(e.GetMessage(), "was damaged in object storage")
		})
		if s.accepted() != s.get(configAt) {
			t.Error("it is not stored")
		}
	})
}

// TestAppliedIsStoredAfterAFailure: an applied/ that is gone, and can't be stored again because the store
// does not answer in between, is tried soon, and not only at the next check.
func TestAppliedIsStoredAfterAFailure(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, _ := running(t, quiet())
		s.settled()
		const key = "applied/" + shardID + ".jsonc"
		s.remove(key)
		var reads atomic.Int64
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbGet && r.Key == key && reads.Add(1) == 2 { // the first one found that it is gone
				return objecttest.Outcome{Fault: objecttest.Dropped}
			}
			return objecttest.Outcome{}
		})
		time.Sleep(time.Hour)
		if n := reads.Load(); n < 3 || !slices.Contains(s.keys(""), key) {
			t.Errorf("read %d times", n)
		}
	})
}

// TestAnotherNonceKey: a server that boots without the key for nonces makes a new one, which the leader
// tells; what is gone besides is stored again all the same.
func TestAnotherNonceKey(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, quiet())
		s.settled()
		errs := p.watchErrors("default")
		s.remove("cluster/secret/registration-nonce.key")
		s.standby()
		s.remove("cluster/secret/ca.key")
		time.Sleep(time.Hour)
		errs.next("it is told", func(e *nstancev1.WatchErrorsResponse) bool {
			return e.GetReason() == leader.ReasonTrust && strings.Contains(e.GetMessage(), "restart this server")
		})
		if !slices.Contains(s.keys("cluster/"), "cluster/secret/ca.key") {
			t.Error("the CA's key is gone")
		}
	})
}

// TestEssentialsOfASilentStore: what is not seen is not gone: nothing is stored while the store does
// not answer, or refuses. A refusal of the keys is told.
func TestEssentialsOfASilentStore(t *testing.T) {
	for name, fault := range map[string]objecttest.Fault{"no answer": objecttest.Dropped, "refused": objecttest.Refused} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t, quiet())
			s.settled()
			before := map[string]string{}
			for _, key := range essentials() {
				before[key] = s.get(key)
			}
			s.store.Set(func(r objecttest.Request) objecttest.Outcome {
				if r.Verb == object.VerbGet && slices.Contains(essentials(), r.Key) {
					return objecttest.Outcome{Fault: fault}
				}
				return objecttest.Outcome{}
			})
			time.Sleep(2 * time.Hour)
			s.store.Set(nil)
			after := map[string]string{}
			for _, key := range essentials() {
				after[key] = s.get(key)
			}
			if !maps.Equal(before, after) {
				t.Error("something was stored")
			}
			if n := p.log.counting("problem", "reason", leader.ReasonRestored); n > 0 {
				t.Errorf("told %d times", n)
			}
			refused := p.log.counting("problem", "reason", leader.ReasonTrust) > 0 // no server can start then
			if refused != (fault == objecttest.Refused) {
				t.Errorf("told that no server can start: %t", refused)
			}
		}))
	}
}
