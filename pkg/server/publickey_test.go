package server_test

import (
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// newborns starts a server whose group has three machines that have not registered.
func newborns(t *testing.T) (*site, *process, []fleet.InstanceID) {
	t.Helper()
	s := newSite(t)
	s.config["MORE"] = `"garbage_collection": { "registration_timeout": "1h" },`
	s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 3 } }`
	s.putConfig(shardID)
	p := s.start().awaitLeading()
	eventually(t, "three machines", func() error {
		if len(s.living()) != 3 {
			return errors.New("there are others")
		}
		return nil
	})
	return s, p, s.living()
}

// keyTaken checks that a key was refused as another instance's, without naming that.
func keyTaken(t *testing.T, err error, field string, others ...fleet.InstanceID) {
	t.Helper()
	if status.Code(err) != codes.InvalidArgument || !rpc.KeyTaken(err) || !slices.Equal(fields(err), []string{field}) {
		t.Errorf("%v (of %v), want %s refused as another instance's", err, fields(err), field)
	}
	for _, id := range others {
		if err != nil && strings.Contains(err.Error(), string(id)) {
			t.Errorf("the refusal names another instance: %v", err)
		}
	}
}

// TestRegisterWithOneKey: of three machines that register concurrently with one key, one
// succeeds. The nonces of the others stay valid with their own keys.
func TestRegisterWithOneKey(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, ids := newborns(t)
		key := newKey(t)
		answers := make([]error, len(ids))
		var calls sync.WaitGroup
		for n, id := range ids {
			calls.Go(func() { _, answers[n] = p.registerWith(s.nonceOf(id), key) })
		}
		calls.Wait()
		in := slices.Index(answers, nil)
		if in < 0 {
			t.Fatalf("no machine got in: %v", answers)
		}
		for n, id := range ids {
			if n == in {
				continue
			}
			keyTaken(t, answers[n], "public_key", ids[in])
			if i, err := p.instance(id); err != nil || i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_PENDING {
				t.Errorf("a refusal changed the instance: %v, %v", i, err)
			}
			if _, err := p.registerWith(s.nonceOf(id), newKey(t)); err != nil {
				t.Errorf("the same nonce with another key: %v", err)
			}
		}
		if _, err := p.registerWith(s.nonceOf(ids[in]), key); err != nil {
			t.Errorf("the instance's own key again: %v", err)
		}
		s.allKeysDiffer()
	})
}

// allKeysDiffer checks the records.
func (s *site) allKeysDiffer() {
	s.t.Helper()
	of := map[string]fleet.InstanceID{}
	for _, i := range s.records() {
		if other, there := of[i.PublicKeySHA256]; there && i.PublicKeySHA256 != "" {
			s.t.Errorf("%s and %s have one key", other, i.ID)
		}
		of[i.PublicKeySHA256] = i.ID
	}
}

// TestKeyOfAnotherAcrossServers: the next leader finds the keys in the records.
func TestKeyOfAnotherAcrossServers(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, ids := newborns(t)
		key := newKey(t)
		if _, err := p.registerWith(s.nonceOf(ids[0]), key); err != nil {
			t.Fatal(err)
		}
		p.ends()
		q := s.start(named("b")).awaitLeading()
		_, err := q.registerWith(s.nonceOf(ids[1]), key)
		keyTaken(t, err, "public_key", ids[0])
		if _, err := q.registerWith(s.nonceOf(ids[0]), key); err != nil {
			t.Errorf("the instance's own key on the next leader: %v", err)
		}
	})
}

// TestKeyOfOneThatIsGone: the key of a deleted instance may be used again.
func TestKeyOfOneThatIsGone(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, ids := newborns(t)
		key, token := newKey(t), s.nonceOf(ids[0])
		if _, err := p.registerWith(token, key); err != nil {
			t.Fatal(err)
		}
		s.world.Kill(ids[0])
		p.awaitPhase(ids[0], nstancev1.InstancePhase_INSTANCE_PHASE_DELETED)
		if _, err := p.registerWith(s.nonceOf(ids[1]), key); err != nil {
			t.Errorf("the key of one that is gone: %v", err)
		}
		for _, k := range []ed25519.PrivateKey{key, newKey(t)} {
			_, err := p.registerWith(token, k)
			refused(t, err, codes.PermissionDenied)
		}
	})
}
