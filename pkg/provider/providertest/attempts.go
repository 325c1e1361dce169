package providertest

import (
	"errors"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
)

// testRefusedThenChanged has a create be refused for certain, and asks again for the same
// id with other parameters, as a server does whose spec holds a fresh nonce.
func testRefusedThenChanged(t *testing.T, s *shard) {
	refusals := map[string]func(provider.Spec) error{}
	if len(s.BadArgs) > 0 {
		refusals["bad args"] = func(spec provider.Spec) error {
			spec.Args = s.BadArgs[0]
			_, err := s.Create(t.Context(), spec)
			return err
		}
	}
	if s.Short != nil {
		refusals["no room"] = func(spec provider.Spec) error {
			relieve := s.Short(t)
			defer relieve()
			_, err := s.Create(t.Context(), spec)
			return err
		}
	}
	for name, refuse := range refusals {
		for _, raised := range []bool{true, false} {
			spec := s.spec(t, s.scope)
			if err := refuse(spec); !provider.Definite(err) {
				t.Fatalf("%s: create answers %v, want a definite refusal", name, err)
			}
			spec = changed(spec)
			if raised {
				spec.Attempt++
			} else {
				spec = untilSpent(t, s, spec)
			}
			vm, err := s.Create(t.Context(), spec)
			if err != nil || vm.ID != spec.ID {
				t.Fatalf("%s, then attempt %d: %+v, %v", name, spec.Attempt, vm, err)
			}
			s.await(t, s, vm.Ref(), provider.StateRunning)
			again, err := s.Create(t.Context(), changed(spec))
			if err != nil || again.Ref() != vm.Ref() {
				t.Errorf("%s: the attempt that made %v, with other parameters, answers %v, %v", name, vm.Ref(), again.Ref(), err)
			}
			removal(t, s, vm) // which finds no other
		}
	}
}

// changed is a spec as it is built the next time.
func changed(spec provider.Spec) provider.Spec {
	spec.Userdata = append(spec.Userdata[:len(spec.Userdata):len(spec.Userdata)], "# again\n"...)
	spec.Bootstrap.Nonce += "d"
	return spec
}

// untilSpent repeats an attempt that was refused, as a server does that did not hear so. It
// makes the VM, or it is spent, for which the next attempt is returned.
func untilSpent(t *testing.T, s *shard, spec provider.Spec) provider.Spec {
	t.Helper()
	next := spec
	s.eventually(t, "the refused attempt makes the VM or is spent", func() (bool, string) {
		switch _, err := s.Create(t.Context(), spec); {
		case err == nil:
			return true, ""
		case errors.Is(err, provider.ErrSpent):
			next.Attempt++
			return true, ""
		case errors.Is(err, provider.ErrUsed):
			return false, err.Error()
		default:
			t.Fatalf("the refused attempt with other parameters answers %v: want the VM, ErrUsed or ErrSpent", err)
			return false, ""
		}
	})
	return next
}
