package provider_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

const id = fleet.InstanceID("knc01jd3kqw00e0080000000000aa")

var scope = provider.Scope{ClusterID: "c", Shard: "s"}

func TestSpecCheck(t *testing.T) {
	good := func() provider.Spec {
		return provider.Spec{ID: id, Tags: scope.Tags(fleet.Instance{ID: id, Tenant: "default", Group: "web"})}
	}
	if _, err := fleet.ParseID(string(id)); err != nil {
		t.Fatal(err)
	}
	if err := good().Check(scope); err != nil {
		t.Fatalf("a good spec: %v", err)
	}
	for field, change := range map[string]func(*provider.Spec){
		"id:":                       func(s *provider.Spec) { s.ID = "web-1" },
		"tags[nstance:managed]":     func(s *provider.Spec) { s.Tags[provider.TagManaged] = "yes" },
		"tags[nstance:cluster-id]":  func(s *provider.Spec) { s.Tags[provider.TagClusterID] = "" },
		"tags[nstance:shard]":       func(s *provider.Spec) { s.Tags[provider.TagShard] = "t" },
		"tags[nstance:instance-id]": func(s *provider.Spec) { s.Tags[provider.TagInstanceID] = "web-1" },
	} {
		spec := good()
		change(&spec)
		err := spec.Check(scope)
		if !errors.Is(err, provider.ErrInvalid) || !provider.Definite(err) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v, want ErrInvalid that names it", field, err)
		}
	}
}

func TestRefNames(t *testing.T) {
	vm := provider.VM{ID: id, ProviderID: "p"}
	for ref, want := range map[provider.Ref]bool{
		{}: false, {ID: id}: true, {ProviderID: "p"}: true, {ID: id, ProviderID: "p"}: true,
		{ID: id, ProviderID: "q"}: false, {ID: "other", ProviderID: "p"}: false,
	} {
		if got := ref.Names(vm); got != want {
			t.Errorf("%+v names the VM: %v, want %v", ref, got, want)
		}
	}
}

func TestOwns(t *testing.T) {
	tags := scope.Tags(fleet.Instance{ID: id})
	if !scope.Owns(tags) || provider.TaggedID(tags) != id {
		t.Errorf("a scope does not know its own tags %v", tags)
	}
	tags[provider.TagInstanceID] = "web-1"
	if !scope.Owns(tags) || provider.TaggedID(tags) != "" {
		t.Error("a VM of ours with a malformed id is still ours, without an id")
	}
	for _, other := range []provider.Scope{{ClusterID: "c", Shard: "t"}, {ClusterID: "d", Shard: "s"}, {}} {
		if other.Owns(tags) {
			t.Errorf("%v owns the VM of %v", other, scope)
		}
	}
}

func TestDefinite(t *testing.T) {
	for err, want := range map[error]bool{
		provider.ErrSubnetFull: true, provider.ErrQuota: true, provider.ErrThrottled: true, provider.ErrInvalid: true,
		provider.ErrUnauthorized: true, provider.ErrUnsupported: true,
		provider.ErrNotFound: false, errors.New("connection reset"): false, context.Canceled: false,
	} {
		if got := provider.Definite(fmt.Errorf("create: %w", err)); got != want {
			t.Errorf("%v is definite: %v, want %v", err, got, want)
		}
	}
}

func TestPermit(t *testing.T) {
	if err := provider.Permit(t.Context()); err != nil {
		t.Errorf("without a guard: %v", err)
	}
	refusal := errors.New("not the leader")
	ctx := provider.WithGuard(t.Context(), func(context.Context) error { return refusal })
	if err := provider.Permit(ctx); !errors.Is(err, refusal) {
		t.Errorf("the guard's answer is lost: %v", err)
	}
}

// TestEach asks side by side, never about more than the limit at a time.
func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var under atomic.Int32
		refs := make([]provider.Ref, provider.MaxBatch)
		for n := range refs {
			refs[n].ProviderID = strconv.Itoa(n)
		}
		began := time.Now()
		for n, a := range provider.GetEach(refs, 8, func(ref provider.Ref) (provider.VM, error) {
			if n := under.Add(1); n > 8 {
				t.Errorf("%d at a time, want 8", n)
			}
			defer under.Add(-1)
			time.Sleep(time.Second)
			return provider.VM{ProviderID: ref.ProviderID}, nil
		}) {
			if a.VM.ProviderID != refs[n].ProviderID {
				t.Errorf("answer %d is about %s", n, a.VM.ProviderID)
			}
		}
		if took := time.Since(began); took != 13*time.Second { // 100 of them, 8 at a time
			t.Errorf("%v in all, want 13s", took)
		}
	})
}
