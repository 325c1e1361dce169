package providertest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
)

// mixture is a batch about two VMs, among references to what is not there, what
// is another shard's, and nothing at all.
type mixture struct {
	a, b, bystander, foreign provider.VM
	elsewhere                provider.Provider // where the foreign one lives
	refs                     []provider.Ref
	named                    []string // what each ref is of: a, b, nothing or bad
}

func (s *shard) mix(t *testing.T) mixture {
	t.Helper()
	scope := provider.Scope{ClusterID: s.scope.ClusterID, Shard: "shard-2"}
	m := mixture{a: s.create(t), b: s.create(t), bystander: s.create(t), elsewhere: s.Open(t, scope)}
	foreign, err := m.elsewhere.Create(t.Context(), s.spec(t, scope))
	if err != nil {
		t.Fatal(err)
	}
	m.foreign = s.await(t, m.elsewhere, foreign.Ref(), provider.StateRunning)
	for _, one := range []struct {
		ref   provider.Ref
		named string
	}{
		{m.b.Ref(), "b"},
		{provider.Ref{ID: s.newID(t)}, "nothing"},
		{provider.Ref{}, "bad"},
		{provider.Ref{ID: m.a.ID}, "a"},
		{m.foreign.Ref(), "nothing"},
		{provider.Ref{ProviderID: m.foreign.ProviderID}, "nothing"},
		{provider.Ref{ProviderID: "no-such-vm"}, "nothing"},
		{m.b.Ref(), "b"}, // once more
		{provider.Ref{ID: m.a.ID, ProviderID: m.bystander.ProviderID}, "nothing"},
		{provider.Ref{ProviderID: m.a.ProviderID}, "a"},
	} {
		m.refs, m.named = append(m.refs, one.ref), append(m.named, one.named)
	}
	return m
}

// testBatchGet asks for many at once: each answer is that of its own reference.
func testBatchGet(t *testing.T, s *shard) {
	m := s.mix(t)
	answers := s.Get(t.Context(), m.refs)
	if len(answers) != len(m.refs) {
		t.Fatalf("%d answers about %d references", len(answers), len(m.refs))
	}
	for n, got := range answers {
		want, vm := error(nil), m.a
		switch m.named[n] {
		case "b":
			vm = m.b
		case "nothing":
			want = provider.ErrNotFound
		case "bad":
			want = provider.ErrInvalid
		}
		if !errors.Is(got.Err, want) || want == nil && (got.VM.Ref() != vm.Ref() || got.VM.State != provider.StateRunning) {
			t.Errorf("reference %d, to %s: %+v, %v; want %v", n, m.named[n], got.VM, got.Err, want)
		}
	}
}

// testBatchDelete deletes many at once, and nothing besides.
func testBatchDelete(t *testing.T, s *shard) {
	m := s.mix(t)
	errs := s.Delete(t.Context(), m.refs)
	if len(errs) != len(m.refs) {
		t.Fatalf("%d answers about %d references", len(errs), len(m.refs))
	}
	for n, err := range errs {
		if bad := m.named[n] == "bad"; bad != errors.Is(err, provider.ErrInvalid) || !bad && err != nil {
			t.Errorf("delete by reference %d, to %s: %v", n, m.named[n], err)
		}
	}
	s.await(t, s, m.a.Ref(), provider.StateDeleted)
	s.await(t, s, m.b.Ref(), provider.StateDeleted)
	s.await(t, s, m.bystander.Ref(), provider.StateRunning)
	s.await(t, m.elsewhere, m.foreign.Ref(), provider.StateRunning)
}

// testBatchSizes: none is answered by nothing, the most that is allowed works,
// and one more is refused as a whole.
func testBatchSizes(t *testing.T, s *shard) {
	vm := s.create(t)
	if answers, errs := s.Get(t.Context(), nil), s.Delete(t.Context(), nil); len(answers)+len(errs) != 0 {
		t.Errorf("a batch of none: %v, %v", answers, errs)
	}
	refs := slices.Repeat([]provider.Ref{vm.Ref()}, provider.MaxBatch+1)
	answers, errs := s.Get(t.Context(), refs), s.Delete(t.Context(), refs)
	if len(answers) != len(refs) || len(errs) != len(refs) {
		t.Fatalf("%d and %d answers about %d references", len(answers), len(errs), len(refs))
	}
	for n := range refs {
		if !errors.Is(answers[n].Err, provider.ErrInvalid) || !errors.Is(errs[n], provider.ErrInvalid) {
			t.Fatalf("one too many: get %v, delete %v; want ErrInvalid", answers[n].Err, errs[n])
		}
	}
	refs = refs[1:]
	for n, a := range s.Get(t.Context(), refs) {
		if a.Err != nil || a.VM.Ref() != vm.Ref() || a.VM.State != provider.StateRunning {
			t.Fatalf("answer %d of the largest batch: %+v, %v", n, a.VM, a.Err)
		}
	}
	if err := errors.Join(s.Delete(t.Context(), refs)...); err != nil {
		t.Errorf("delete the largest batch: %v", err)
	}
	s.await(t, s, vm.Ref(), provider.StateDeleted)
}

// testBatchFails: what fails as a whole is the error of every reference.
func testBatchFails(t *testing.T, s *shard) {
	vms := []provider.VM{s.create(t), s.create(t)}
	refs := []provider.Ref{vms[0].Ref(), vms[1].Ref()}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for n, a := range s.Get(ended, refs) {
		if !errors.Is(a.Err, context.Canceled) {
			t.Errorf("get %d with a context that has ended: %v", n, a.Err)
		}
	}
	refusal := errors.New("not the leader")
	refused := provider.WithGuard(t.Context(), func(context.Context) error { return refusal })
	for n, err := range s.Delete(refused, refs) {
		if err != refusal { //nolint:errorlint // as it is, not wrapped
			t.Errorf("delete %d against the guard: %v, want the guard's own error", n, err)
		}
	}
	for _, vm := range vms {
		s.await(t, s, vm.Ref(), provider.StateRunning)
	}
}
